# SPDX-License-Identifier: Apache-2.0
"""Wide models: many classes, embeddings and sparse text, against fitting again."""

__all__: list[str] = []
