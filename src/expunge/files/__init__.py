# SPDX-License-Identifier: Apache-2.0
"""Files: a model in a folder, its release apart from its private state.

    release.json   release.safetensors     may be shipped: predictions, certificate
    private.json   private.safetensors     stay with the operator: removal needs them

JSON says what there is, safetensors holds the arrays, and nothing is ever pickled. The
release knows nothing of the private half, not even a hash. ``ship`` writes a release as
one file, for those who serve it.
"""

from .export import read_shipped, ship
from .folder import CorruptFiles, read_snapshot, save

__all__ = ["CorruptFiles", "read_shipped", "read_snapshot", "save", "ship"]
