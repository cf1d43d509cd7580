# SPDX-License-Identifier: Apache-2.0
"""Mistakes that somebody could make where rows lie elsewhere."""

from importlib import import_module
from typing import Any

import numpy as np

from .replacing import put

DEVICE_ROWS = "gpu.rows:DeviceRows"
STORED_ROWS = "long.stored_rows:StoredRows"
WORKERS = "engines:Workers"


def weigh_who_left_on_the_device() -> None:
    """Count rows as absent, and let them weigh what they did."""
    kind = import_module("expunge.gpu.rows").DeviceRows

    def without(self: Any, gone: Any) -> Any:
        absent = np.union1d(self._absent, gone)
        return kind(self._X, self._y, self._weight, absent=absent)

    put(DEVICE_ROWS, "without", without)


def leave_rows_on_the_device() -> None:
    """Take who left out of the sums, and overwrite nothing."""
    put(DEVICE_ROWS, "erase_rows", lambda self, gone: self.without(gone))


def round_rows_on_the_device() -> None:
    """Keep rows in float32 that float32 changes."""
    rows = import_module("expunge.gpu.rows")
    real = rows.copy_rows

    def copy_rows(given: Any, *, device: str) -> Any:
        there = real(given, device=device)
        there._X = there._X.float()
        return there

    put("engines", "copy_rows", copy_rows)


def forget_the_copy_of_newcomers() -> None:
    """Leave the copy on the device as it is when rows come."""
    base = import_module("expunge.private_model.training_rows").TrainingRows
    put("private_model.training_rows:MirroredRows", "append", base.append)


def read_who_left_from_files() -> None:
    """Give rows of files that left their weight again."""

    def read_block(self: Any, number: int) -> Any:
        begin = number * self.block_rows
        end = min(begin + self.block_rows, self.table.n_rows)
        return self._see(begin, end)

    put(STORED_ROWS, "read_block", read_block)


def add_groups_backwards() -> None:
    """Add what workers return in another order than this process would."""
    real = _stream()
    put(WORKERS, "stream", lambda self, work, jobs: [*real(self, work, jobs)][::-1])


def lose_the_last_group() -> None:
    """Leave out what the last worker returns, if there are several."""
    real = _stream()

    def stream(self: Any, work: Any, jobs: Any) -> Any:
        found = [*real(self, work, jobs)]
        return found[:-1] or found

    put(WORKERS, "stream", stream)


def _stream() -> Any:
    return import_module("expunge.engines").Workers.stream
