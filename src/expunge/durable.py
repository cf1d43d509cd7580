# SPDX-License-Identifier: Apache-2.0
"""Durable: what is needed beside ``fsync`` of a file to find it after a power cut."""

import os
from pathlib import Path


def flush(folder: Path) -> None:
    """See the names in a folder on disk, where the system knows how."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
