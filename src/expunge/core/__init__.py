# SPDX-License-Identifier: Apache-2.0
"""The mathematics: losses, penalties, objectives, sums over rows, solvers."""

__all__: list[str] = []
