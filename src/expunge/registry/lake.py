# SPDX-License-Identifier: Apache-2.0
"""Lake: models whose rows stay in the user's files, which can be rewritten.

registry   the rows, sealed for each person, as of any table. They are read into memory
           at the fit and by every later pass, so there must not be too many.
lake       no row. The registry keeps where each person's rows lie, sealed like rows,
           and reads the files when an answer needs them.
never      the same, and no pass: the rows of people who leave are read once, and
           whatever would take the rows of others is refused.

At the fit one pass over the column of owners writes, for each row, its place and the
tag of its owner into one of 256 files, by the tag. Each of these is small enough to be
sorted in memory, and holds all rows of the people in it.

The registry never changes the files, except when it is asked to rewrite those that hold
people who left. For each file, in this order: the new content is on disk beside it; the
checkpoint of every model that reads the file says that it has its old content or the
new one; the new one takes its place; the next checkpoints say that it has. Between any
two of these a crash leaves models that can read their rows, and the next rewrite goes
on from there. A row goes if its owner left: if the registry holds nothing of them, in
any model or set aside. Rows of people who are restricted or held, or whose rows were
corrected, stay in the file, though the model reads them there no more. So does a row
that another model still reads.

Nothing imports this module until a model's rows lie in files, or somebody asks.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Index
from ..core.values import Private
from ..disk import scratch_folder
from ..display.progress import OnProgress, be_silent
from ..exceptions import InvalidInput, Unsupported
from ..ledger import TagKey, subject_tags
from ..ledger.documents import model_name
from ..ledger.keys import near_tag
from ..long import LongTable
from ..long.parquet import Identity, ParquetTable
from ..long.rewriting import draft_path, put_in_place, read_owners_at, write_draft
from ..long.source import (
    Source,
    Version,
    find_versions,
    make_source,
    read_identity,
    refuse_changed,
)
from ..promise.scope import Scope
from ..rights.identifiers import ID
from .changes import write_unreleased
from .comparing import require_comparable
from .completion import finish_committed
from .context import WAIT, Context, RegistryPart
from .fits import (
    FitOptions,
    ForgottenInData,
    ForgottenTags,
    LeftOut,
    choose_tags,
    leave_out_forgotten,
    read_forgotten,
)
from .keys import read_tag_keys
from .loaded_model import FilesOfModel, LoadedModel, dump_places
from .storage import people_table, releases_table
from .worker import recover

KeepRows: TypeAlias = Literal["registry", "lake", "never"]
MOST_IN_MEMORY = 1 << 32
"""How many bytes of rows a registry keeps of a long table at most."""
BUCKETS = 256
NEAR_AT_ONCE = 10_000
WORDS = 4
# A tag is the name of its key, by number, and 32 bytes, as four numbers.
ENTRY = np.dtype([("key", "u1"), ("tag", "<u8", (WORDS,)), ("place", "<i8")])


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

    table: LongTable
    keep_rows: KeepRows = "lake"
    source: str | None = None
    engine: Any = None

    def __post_init__(self) -> None:
        """Refuse what is not a table, a choice or a name."""
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


def read_whole(table: LongTable, given: FitOptions) -> tuple[Any, Any, FitOptions]:
    """Return the rows of a table in memory, to be kept as those of any other."""
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
    given = given._replace(
        subjects=None if subject is None else others[subject].tolist(),
        sample_weight=None if weight is None else others[weight],
    )
    return X, others[columns.target], given


class PlacesByPerson:
    """The places of each person's rows, in a folder that its owner deletes."""

    def __init__(self, folder: Path, keys: Sequence[TagKey]) -> None:
        self._folder = folder
        self._near = folder / "spellings"
        self._names = [key.id for key in keys]
        self._numbers = {name: number for number, name in enumerate(self._names)}

    def add(self, tags: Sequence[str], codes: Index, *, places: Index) -> None:
        """Note the owners of some rows, by their number among tags."""
        parts = [tag.partition(":") for tag in tags]
        entries = np.empty(len(tags), dtype=ENTRY)
        entries["key"] = [self._numbers[name] for name, _, _ in parts]
        digits = bytes.fromhex("".join(digits for _, _, digits in parts))
        entries["tag"] = np.frombuffer(digits, "<u8").reshape(-1, WORDS)
        rows = entries[codes]
        rows["place"] = places
        buckets = rows["tag"][:, 0] % BUCKETS
        order = np.argsort(buckets, kind="stable")
        ends = np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
        for bucket in np.unique(buckets).tolist():
            some = rows[order[ends[bucket] : ends[bucket + 1]]]
            with self._path(bucket).open("ab") as file:
                file.write(some.tobytes())

    def note_spellings(self, tags: Sequence[str], near: Sequence[str]) -> None:
        """Note the tags of the loosest forms of people's ids; some may come again."""
        with self._near.open("a", encoding="ascii") as file:
            file.writelines(map("{} {}\n".format, tags, near))

    def spellings(self) -> Iterator[dict[str, str]]:
        """Yield the tags of loosest forms by those of people, some at a time."""
        if self._near.exists():
            with self._near.open(encoding="ascii") as file:
                while lines := list(islice(file, NEAR_AT_ONCE)):
                    yield dict(line.split() for line in lines)

    def people(self) -> Iterator[tuple[str, Index]]:
        """Yield the tag of each person, with the sorted places of their rows."""
        for bucket in range(BUCKETS):
            if self._path(bucket).exists():
                yield from self._sort(np.fromfile(self._path(bucket), dtype=ENTRY))

    def _sort(self, entries: NDArray[Any]) -> Iterator[tuple[str, Index]]:
        words = [entries["tag"][:, word] for word in range(WORDS)]
        entries = entries[np.lexsort((entries["place"], entries["key"], *words))]
        who = np.column_stack([entries["key"].astype(np.uint64), entries["tag"]])
        cuts = np.flatnonzero((who[1:] != who[:-1]).any(axis=1)) + 1
        for theirs in np.split(entries, cuts):
            name, digits = self._names[theirs["key"][0]], theirs["tag"][0].tobytes()
            yield f"{name}:{digits.hex()}", theirs["place"].astype(np.intp)

    def _path(self, bucket: int) -> Path:
        return self._folder / f"places-{bucket:03d}"


def find_places(
    context: Context,
    table: LongTable,
    *,
    folder: Path,
    forgotten: ForgottenTags,
    exact: bool,
    unchecked: bool,
) -> tuple[PlacesByPerson, Index, tuple[int, int]]:
    """Return whose rows lie where, but those of people who were forgotten.

    Beside them the places of the rows of those people, how many people they are, and
    how many of these by an id that is only spelled almost so.

    Parameters
    ----------
    context
        The registry.
    table
        The table; rows that are absent in it are left out.
    folder
        Where to sort them: a private folder that the caller deletes.
    forgotten
        Tags of people who may be in no fit.
    exact
        Whether to look for these very ids alone.
    unchecked
        Whether to take ids that cannot be compared with lists of others.
    """
    keys = read_tag_keys(context.paths)
    found = PlacesByPerson(folder, keys)
    back: list[Index] = []
    people: dict[str, str] = {}
    for begin, owners, codes in table.read_owners():
        require_comparable(context, owners, unchecked=unchecked)
        answers = [forgotten.find(owner, keys, exact=exact) for owner in owners]
        left = np.array([answer is not None for answer in answers])
        tags = [subject_tags(owner, keys[:1])[0] for owner in owners]
        if len(keys) > 1:  # one that is in use already, if there is one
            with context.store.read() as connection:
                tags = choose_tags(connection, owners, keys=keys)
        people |= {
            tag: answer for tag, answer in zip(tags, answers, strict=True) if answer
        }
        found.note_spellings(tags, [near_tag(owner, keys[0]) for owner in owners])
        places = begin + np.arange(len(codes))
        present = np.isin(places, table.absent, invert=True)
        back.append(places[left[codes] & present])
        stays = ~left[codes] & present
        found.add(tags, codes[stays], places=places[stays])
    n_near = list(people.values()).count("near")
    gone = np.concatenate([table.absent[:0], *back])
    return found, gone, (len(people), n_near)


class LakeRows(NamedTuple):
    """What is stored of a lake with a name: whose rows lie where; None if nobody's."""

    lake: Lake
    people: PlacesByPerson | None = None

    def make_source(self) -> Source:
        """Return where the rows lie, but those that are absent by now."""
        assert self.lake.source is not None
        passes = self.lake.keep_rows == "lake"
        return make_source(self.lake.table, self.lake.source, passes=passes)

    def dump_people(self) -> Iterator[tuple[str, bytes]]:
        """Yield the tag of each person, with the places of their rows as bytes."""
        if self.people is not None:
            for tag, places in self.people.people():
                yield tag, dump_places(places)

    def describe(self, *, end: int) -> FilesOfModel:
        """Return where the rows of a model lie; theirs are the keys before ``end``."""
        return FilesOfModel(self.make_source(), end)

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, with where the rows lie."""
        return replace(
            scope,
            has_people=self.people is not None,
            rows_kept=self.lake.keep_rows == "lake",
            source=self.lake.source or "",
        )


@contextmanager
def open_lake(
    context: Context, X: Any, y: Any, *, given: FitOptions, name: str
) -> Iterator[tuple[Any, Any, FitOptions, LeftOut, LakeRows | None]]:
    """Return what to fit to a long table, without the rows of people who left.

    Beside it how many these are, and what is stored of the table; None if its rows are
    kept like those of any other. Raises ForgottenInData if there are people who left
    and they shall not be left out. Rows that are left out are absent from the table
    from then on. Its source has the name of the model, unless it has one of its own.
    """
    lake = Lake(X) if isinstance(X, LongTable) else X
    beside = {"y": y, "subjects": given.subjects, "sample_weight": given.sample_weight}
    for what, value in beside.items():
        if value is not None:
            raise InvalidInput(
                f"a long table has its own labels, owners and weights; leave {what} "
                "out, and name their columns when you open the table"
            )
    table = lake.table
    if lake.keep_rows == "registry":
        X, y, given = read_whole(table, given)
        yield *leave_out_forgotten(context, X, y, given), None
        return
    if given.subject_kind != ID:
        raise InvalidInput(
            f"subject_kind={given.subject_kind!r} for rows that stay in files, whose "
            "ids are read as they are; write the ids there in one spelling, and leave "
            "subject_kind out"
        )
    rows = LakeRows(lake if lake.source else replace(lake, source=name))
    rows.make_source()  # or refuse, before anything is read
    if table.people is None:
        yield table, None, given, LeftOut(), rows
        return
    forgotten = read_forgotten(context)
    # For its owner alone, and with tags that are worth nothing without their key.
    with scratch_folder() as folder:
        people, back, (n_people, n_near) = find_places(
            context,
            table,
            folder=folder,
            forgotten=forgotten,
            exact=given.exact,
            unchecked=given.unchecked,
        )
        if len(back) and not given.without_forgotten:
            raise ForgottenInData(back.tolist(), n_people, n_near=n_near)
        if len(back) == len(table):
            raise InvalidInput(
                f"all rows ({len(back)}) are of people who were forgotten; nothing is "
                "left to fit"
            )
        if len(back):
            table.erase(back)
        left_out = LeftOut(len(back), n_people)
        yield table, None, given, left_out, rows._replace(people=people)


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


class RegistryLake(RegistryPart):
    """The files that models read their rows from, as ``Registry.lake``."""

    def status(self, name: str) -> SourceStatus:
        """Return how many files of a model still hold people who left it."""
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
        with self._context.hold_lock(WAIT):
            recover(self._context, WAIT)
            return rewrite_source(self._context, name, on_progress=on_progress)


def require_source(loaded: LoadedModel) -> Source:
    """Return where the rows of a model lie, or raise InvalidInput."""
    if loaded.files is None:
        raise InvalidInput(
            f"the rows of model {loaded.name!r} are kept in the registry, sealed: "
            "it has no files to look at"
        )
    return loaded.files.source


def rewrite_source(context: Context, name: str, *, on_progress: OnProgress) -> int:
    """Rewrite the files that hold people who left a model; return how many.

    The lock is held.
    """
    source = require_source(context.load_model(name))
    find_versions(source)
    numbers, n_written = source.files_to_rewrite(), 0
    for done, number in enumerate(numbers):
        on_progress(done, len(numbers))
        path = Path(source.files[number].path)
        readers = _find_readers(context, path)
        if name not in [one.name for one in readers]:
            refuse_changed(source.name, f"file {number}")
        # The one that was asked for is the last to be settled: another call finds it.
        readers.sort(key=lambda one: one.name == name)
        n_written += _rewrite_file(context, path, readers=readers)
    on_progress(len(numbers), len(numbers))
    return n_written


def count_holding(context: Context, name: str) -> int:
    """Return how many files of a model hold people who left; the lock is held.

    Raises InvalidInput if a file is not as the model knows it: anybody may be in it.
    """
    source = require_source(context.load_model(name))
    find_versions(source)
    n_files = 0
    for number in source.files_to_rewrite():
        path = Path(source.files[number].path)
        mine = [one for one in _find_readers(context, path) if one.name == name]
        if not mine:
            refuse_changed(source.name, f"file {number}")
        n_files += bool(len(_find_left(context, path, reader=mine[0])))
    return n_files


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Reader(Private):
    """A model that reads a file.

    Attributes
    ----------
    name, number
        Of the model, and of the file among those that it reads.
    version, absent
        The content of the file, as the model knows it, and which of its rows are
        absent, numbered as of the model's fit.
    settled
        Whether the model knows of no other content.
    subject
        The column with the owners of rows; None if they have none.
    """

    name: str
    number: int
    version: Version
    absent: Index
    settled: bool
    subject: str | None

    @property
    def unused(self) -> Index:
        """Which rows of the file, as it now is, the model does not use."""
        gone = np.setdiff1d(self.absent, self.version.dropped)
        return np.asarray(gone - np.searchsorted(self.version.dropped, gone))

    def drop(self, gone: Index, identity: Identity) -> Version:
        """Return the content without these rows of the file as it now is."""
        before = self.version.dropped
        # Of a row that lies at r now, as many before it were dropped as lay at r or
        # earlier when each of these had its turn.
        n_before = np.searchsorted(before - np.arange(len(before)), gone, side="right")
        dropped = np.union1d(before, gone + n_before).astype(np.intp)
        return Version(identity, dropped)


def _find_readers(context: Context, path: Path) -> list[Reader]:
    """Return the models that read a file as it now is; others refuse it already."""
    identity, found = read_identity(path), []
    with context.store.read() as connection:
        names = [
            name
            for name in releases_table.model_names(connection)
            if releases_table.read_newest(connection, name).content is not None
        ]
    for name in names:
        files = context.load_model(name).files
        if files is None:
            continue
        for number, file in enumerate(files.source.files):
            versions = [one for one in file.versions if one.identity == identity]
            if file.path == str(path) and versions:
                absent = files.source.absent_in(number)
                settled = len(file.versions) == 1
                known = (versions[-1], absent, settled, files.source.columns.subject)
                found.append(Reader(name, number, *known))
    return found


def _find_left(context: Context, path: Path, *, reader: Reader) -> Index:
    """Return rows of a file that a model does not use, of people who left."""
    rows = reader.unused
    if reader.subject is None or not len(rows):
        return rows[:0]
    keys = read_tag_keys(context.paths)
    owners = read_owners_at(path, reader.subject, rows=rows)
    tags = {owner: subject_tags(owner, keys) for owner in dict.fromkeys(owners)}
    with context.store.read() as connection:
        every = [tag for theirs in tags.values() for tag in theirs]
        held = people_table.models_by_tag(connection, every)
    left = [held.keys().isdisjoint(tags[owner]) for owner in owners]
    return np.asarray(rows[np.array(left, dtype=bool)])


def _rewrite_file(context: Context, path: Path, *, readers: Sequence[Reader]) -> bool:
    """Rewrite one file, if it holds people who left; return whether it was."""
    left = _find_left(context, path, reader=readers[-1])
    gone: Index = reduce(np.intersect1d, [left, *(one.unused for one in readers)])
    if not len(gone):
        for one in readers:
            if not one.settled:
                _note_versions(context, one, versions=(one.version,))
        draft_path(path).unlink(missing_ok=True)
        return False
    identity = write_draft(path, gone)
    if read_identity(path) != readers[0].version.identity:
        draft_path(path).unlink(missing_ok=True)
        refuse_changed("which is rewritten", "a file")
    after = [one.drop(gone, identity) for one in readers]
    for one, new in zip(readers, after, strict=True):
        _note_versions(context, one, versions=(one.version, new))
    put_in_place(path)
    for one, new in zip(readers, after, strict=True):
        _note_versions(context, one, versions=(new,))
    return True


def _note_versions(
    context: Context, reader: Reader, *, versions: tuple[Version, ...]
) -> None:
    """Write down which contents a file may have; nothing is released."""
    loaded = context.load_model(reader.name)
    assert loaded.files is not None
    source = loaded.files.source
    known = list(source.files)
    known[reader.number] = replace(known[reader.number], versions=versions)
    files = replace(loaded.files, source=replace(source, files=tuple(known)))
    write_unreleased(context, replace(loaded, files=files))
    finish_committed(context, WAIT)
