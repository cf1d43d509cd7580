# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of what expunge claims; ``python -m benchmarks`` runs them."""

__all__: list[str] = []
