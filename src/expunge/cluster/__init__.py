# SPDX-License-Identifier: Apache-2.0
"""Passes over rows on the workers of a Dask cluster."""

from .dask_rows import DaskRows, Unreachable, connect, map_jobs, on_cluster

__all__ = ["DaskRows", "Unreachable", "connect", "map_jobs", "on_cluster"]
