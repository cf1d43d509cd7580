# SPDX-License-Identifier: Apache-2.0
"""Lake: a long table for a registry, what is kept of its rows, and who is in its files.

registry   the rows, sealed for each person, as of any table. They are read into memory
           at the fit and by every later pass, so there must not be too many.
lake       no row. The registry keeps where each person's rows lie, sealed like rows,
           and reads the files when an answer needs them.
never      the same, and no pass: the rows of people who leave are read once, and
           whatever would take the rows of others is refused.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from ...core.values import Private
from ...display.progress import OnProgress, be_silent
from ...exceptions import InvalidInput, Unsupported
from ...ledger.documents import model_name
from ..answering.returning import FitOptions
from ..answering.worker import recover
from ..context import WAIT, Context

if TYPE_CHECKING:  # long tables take a while to import
    from ...long import LongTable
    from ...long.source import Source

KeepRows: TypeAlias = Literal["registry", "lake", "never"]
MOST_IN_MEMORY = 1 << 32
"""How many bytes of rows a registry keeps of a long table at most."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Lake(Private):
    """A long table, and what a registry keeps of its rows.

    Parameters
    ----------
    table
        The table, opened from Parquet files; close it after the fit.
    keep_rows
        "lake" leaves the rows where they are, and reads them again when an answer needs
        them; "never" reads nothing again but the rows of those who leave; "registry"
        keeps them, sealed, as those of any other table.
    source
        The name of the files in public: certificates say that the source of this name
        still holds people who left. By default it is the name of the model.
    engine
        Where passes of the fit run: the workers of a Dask cluster, which must see the
        files under the same paths. Requests are answered in this process.
    """

    table: "LongTable"
    keep_rows: KeepRows = "lake"
    source: str | None = None
    engine: Any = None

    def __post_init__(self) -> None:
        """Refuse what is not a table, a choice or a name."""
        from ...long import LongTable

        if not isinstance(self.table, LongTable):
            raise InvalidInput(
                f"a lake is made of a long table, and this is {type(self.table)}; open "
                "one with expunge.long.open_parquet"
            )
        if self.keep_rows not in get_args(KeepRows):
            raise InvalidInput(
                f"keep_rows={self.keep_rows!r}; give 'registry', 'lake' or 'never'"
            )
        if self.engine is not None and self.keep_rows == "registry":
            raise InvalidInput(
                "engine is for rows that stay in files, and keep_rows='registry' reads "
                "them into memory; leave engine out, or give keep_rows='lake'"
            )
        if self.source is not None:
            try:
                model_name(self.source)
            except ValueError as error:
                raise InvalidInput(
                    f"source {str(self.source)[:80]!r}: {error}; the name is in public "
                    "certificates, so it should say nothing about a person"
                ) from None

    @property
    def passes(self) -> bool:
        """Whether all rows may be read again."""
        return self.keep_rows == "lake"

    def make_source(self) -> "Source":
        """Return where the rows of its model lie from now on."""
        from ...long.source import make_source

        assert self.source is not None
        return make_source(self.table, self.source, passes=self.passes)


def as_lake(X: Any, y: Any, given: FitOptions, *, name: str) -> Lake | None:
    """Return a long table with what is to be kept of it; None for other data.

    Its source has the name of the model, unless it has one of its own.
    """
    from ...long import LongTable

    if isinstance(X, LongTable):
        X = Lake(X)
    if not isinstance(X, Lake):
        if y is None:
            raise InvalidInput("y is missing; only a long table brings its own labels")
        return None
    beside = {"y": y, "subjects": given.subjects, "sample_weight": given.sample_weight}
    for what, value in beside.items():
        if value is not None:
            raise InvalidInput(
                f"a long table has its own labels, owners and weights; leave {what} "
                "out, and name their columns when you open the table"
            )
    return X if X.source is not None else replace(X, source=name)


def read_whole(lake: Lake, given: FitOptions) -> tuple[Any, Any, FitOptions]:
    """Return the rows of a table in memory, to be kept as those of any other."""
    from ...long.parquet import ParquetTable

    table = lake.table
    size = 8 * (len(table.names) + 2) * len(table)
    if size > MOST_IN_MEMORY:
        raise Unsupported(
            f"the rows take {size / 2**30:.1f} GiB, and every pass over rows that a "
            f"registry keeps has all of them in memory: {MOST_IN_MEMORY / 2**30:.0f} "
            "GiB at most; leave them in their files (keep_rows='lake')"
        )
    files = table.origin
    if not isinstance(files, ParquetTable) or len(table.absent):
        raise Unsupported(
            "a registry keeps the rows of Parquet files from which nobody left yet; "
            "open the files again, or fit to rows in memory"
        )
    columns = files.columns
    X, others = files.read_whole()
    subject, weight = columns.subject, columns.weight
    return (
        X,
        others[columns.target],
        given._replace(
            subjects=None if subject is None else others[subject].tolist(),
            sample_weight=None if weight is None else others[weight],
        ),
    )


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """The files behind a model. No person is in it, and no path.

    Parameters
    ----------
    source
        The public name of the files.
    n_files, n_to_rewrite
        How many files there are, and how many of them still hold people who left.
    """

    source: str
    n_files: int
    n_to_rewrite: int


class RegistryLake:
    """The files that models read their rows from, as ``Registry.lake``.

    Parameters
    ----------
    context
        Of the registry.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def status(self, name: str) -> SourceStatus:
        """Return how many files of a model still hold people who left it."""
        from .rewriting import count_holding, require_source  # they import SciPy

        with self._context.hold_lock(WAIT):
            source = require_source(self._context.load_model(name))
            n_left = count_holding(self._context, name)
        return SourceStatus(source.name, len(source.files), n_left)

    def rewrite(self, name: str, *, on_progress: OnProgress = be_silent) -> int:
        """Rewrite the files that hold people who left a model; return how many.

        Each file is replaced at once by one without the rows of those of whom the
        registry holds nothing any more, unless another of its models still reads them.
        All models of this registry follow.

        Parameters
        ----------
        name
            Of the model.
        on_progress
            Called with how many files are done, of how many.
        """
        from .rewriting import rewrite_source

        with self._context.hold_lock(WAIT):
            recover(self._context, WAIT)
            return rewrite_source(self._context, name, on_progress=on_progress)
