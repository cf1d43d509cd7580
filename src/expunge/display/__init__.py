# SPDX-License-Identifier: Apache-2.0
"""What people see: cards in a notebook, progress bars, and the axes of plots."""

__all__: list[str] = []
