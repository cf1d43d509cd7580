# SPDX-License-Identifier: Apache-2.0
"""Rows on a GPU, or on any device of torch, for passes in float64.

Needs ``expunge[gpu]``.
"""

from .rows import DeviceRows, copy_rows, to_device

__all__ = ["DeviceRows", "copy_rows", "to_device"]
