# SPDX-License-Identifier: Apache-2.0
"""Files: a model in a folder, its release apart from its private state.

    release.json   release.safetensors     may be shipped: predictions, certificate
    private.json   private.safetensors     stay with the operator: removal needs them

JSON says what there is, safetensors holds the arrays, and nothing is ever pickled.
The release knows nothing of the private half, not even a hash; with the release alone
``load`` returns a model that predicts and refuses to forget. ``ship`` writes a release
as one file, for whoever serves it.
"""

from .export import read_shipped, ship
from .format import CorruptFiles
from .model import load, save

__all__ = ["CorruptFiles", "load", "read_shipped", "save", "ship"]
