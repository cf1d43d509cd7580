# SPDX-License-Identifier: Apache-2.0
"""Long tables: what passes over Parquet files cost against decoding them."""

__all__: list[str] = []
