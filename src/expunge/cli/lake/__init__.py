# SPDX-License-Identifier: Apache-2.0
"""Commands on tables that stay in their files: fit to them, and rewrite them."""

from .fitting import KeepRows, LakeOptions, LongFit, print_long_fit, readmit_owners
from .rewriting import LakeRewriteCommand, LakeStatusCommand

__all__ = [
    "KeepRows",
    "LakeOptions",
    "LakeRewriteCommand",
    "LakeStatusCommand",
    "LongFit",
    "print_long_fit",
    "readmit_owners",
]
