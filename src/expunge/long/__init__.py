# SPDX-License-Identifier: Apache-2.0
"""Long tables: rows that stay in files and are read block by block.

``open_parquet`` and ``open_npy`` look through files once and return a ``LongTable``,
to which estimators are fitted: ``model.fit(table)``. Nothing here holds more rows in
memory than ``memory`` allows.
"""

from .opening import open_npy, open_parquet
from .stored_rows import StoredRows
from .table import LongTable

__all__ = ["LongTable", "StoredRows", "open_npy", "open_parquet"]
