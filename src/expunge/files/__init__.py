# SPDX-License-Identifier: Apache-2.0
"""Files: a model in a folder, its release apart from its private state.

    release.json   release.safetensors     public: predictions, certificate
    private.json   private.safetensors     for the operator alone: removal needs them

JSON describes the values, safetensors holds the arrays, and nothing is pickled. The
release files say nothing of the private ones, not even a hash. ``ship`` writes a
release as a single file, for serving.
"""

from .export import read_shipped, ship
from .folder import CorruptFiles, read_snapshot, save

__all__ = ["CorruptFiles", "read_shipped", "read_snapshot", "save", "ship"]
