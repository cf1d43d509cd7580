# SPDX-License-Identifier: Apache-2.0
"""MirroredRows: the rows of a model in memory, and a copy of them on a device.

People are found, and rows read and saved, in memory. Passes over the remaining rows run
over the copy. What leaves is overwritten in both.
"""

from collections.abc import Iterable, Sequence

from ..core.arrays import Index
from ..core.rows import Rows, RowSource
from ..engines import DeviceEngine
from ..gpu import DeviceRows
from .row_change import NO_ROWS
from .training_rows import TrainingRows


class MirroredRows(TrainingRows):
    """Rows and their owners in memory, with a copy on a device.

    Parameters
    ----------
    rows, owners, asked
        As of ``TrainingRows``.
    engine
        Puts a copy on the device, when there is none.
    mirror
        The copy, if there is one.
    """

    __slots__ = ("_engine", "_mirror")

    def __init__(
        self,
        rows: Rows,
        owners: Sequence[str],
        asked: Iterable[str] = (),
        *,
        engine: DeviceEngine,
        mirror: DeviceRows | None = None,
    ) -> None:
        super().__init__(rows, owners, asked)
        self._engine = engine
        self._mirror = mirror

    def remaining(self, gone: Index) -> RowSource:
        """Return the remaining rows but these, on the device."""
        if self._mirror is None:
            self._mirror = self._engine.place(super().remaining(NO_ROWS))
        return self._mirror.without(gone)

    def compact(self) -> "TrainingRows":
        """Return the remaining rows, without gaps; the next pass copies them."""
        left = super().compact()
        if left is self:
            return self
        return MirroredRows(left.rows, left.owners, left.asked, engine=self._engine)

    def erase(self, gone: Index) -> None:
        """Overwrite these rows in memory and on the device, and delete their owners."""
        super().erase(gone)
        if self._mirror is not None:
            self._mirror = self._mirror.erase_rows(gone)

    def append(self, added: Rows, owners: Sequence[str], *, place: int) -> None:
        """Put rows at this place and after it; the next pass copies all of them."""
        self._mirror = None
        super().append(added, owners, place=place)
