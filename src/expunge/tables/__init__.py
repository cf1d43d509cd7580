# SPDX-License-Identifier: Apache-2.0
"""Tables: files to features, and a schema that says what each column is."""

from .people import read_ids
from .schema import ColumnSchema, Schema, build_transformer, read_schema
from .training import (
    Roles,
    TrainingTable,
    describe_preprocessing,
    read_features,
    read_table,
)

__all__ = [
    "ColumnSchema",
    "Roles",
    "Schema",
    "TrainingTable",
    "build_transformer",
    "describe_preprocessing",
    "read_features",
    "read_ids",
    "read_schema",
    "read_table",
]
