# SPDX-License-Identifier: Apache-2.0
"""The fair fight: what expunge claims, measured; ``python -m benchmarks`` runs it."""

__all__: list[str] = []
