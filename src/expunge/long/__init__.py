# SPDX-License-Identifier: Apache-2.0
"""Long tables: rows that stay in files and are read block by block.

``open_table`` looks through a table once and returns a ``LongTable``, to which
estimators are fitted: ``model.fit(table)``. It takes files and what is in memory;
``open_parquet`` and ``open_npy`` take one kind each. Nothing here holds more rows in
memory than ``memory`` allows.
"""

from .opening import open_npy, open_parquet, open_table
from .stored_rows import StoredRows
from .table import LongTable

__all__ = ["LongTable", "StoredRows", "open_npy", "open_parquet", "open_table"]
