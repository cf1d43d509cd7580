# SPDX-License-Identifier: Apache-2.0
"""Files: deletion lists as they are downloaded, answers as they are uploaded.

A list is CSV with ``ID,Hash``; that of identifiers which people withdrew has
``ListType`` besides. An answer is CSV with ``Id,Status``, in lines that end with a line
feed, under the name of its list. Names say the day, the broker, and the list:

    20260312_4821_Email.csv
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path

from ..disk import replace_file
from ..exceptions import InvalidInput
from ..registry.exclusions import Listed
from ..rights.drop import FIELDS, hash_identifier, to_digest

REMOVED = "Removed"
EXEMPTED, DELETED, OPTED_OUT, NOT_FOUND = 2, 3, 4, 5
CODES: Mapping[int, str] = {
    EXEMPTED: "exempted",
    DELETED: "deleted",
    OPTED_OUT: "opted out",
    NOT_FOUND: "not found",
}
HEADER = ("Id", "Status")
_LISTS = (*FIELDS, REMOVED)
_NAME = re.compile(
    rf"(?P<day>[0-9]{{8}})_(?P<broker>[A-Za-z0-9]+)_(?P<list>{'|'.join(_LISTS)})"
    r"(?:_(?P<suffix>[A-Za-z0-9]{1,10}))?\.csv"
)
_ITEM = re.compile(r"[A-Za-z0-9]{12}")


@dataclass(frozen=True, slots=True, repr=False)
class DropList:
    """A list as it was downloaded.

    Parameters
    ----------
    file
        Its name.
    name
        Which list it is, or "Removed".
    day
        Of the download, as its name says.
    listed
        The identifiers, in order.
    """

    file: str
    name: str
    day: str
    listed: tuple[Listed, ...]


def read_list(path: str | PathLike[str]) -> DropList:
    """Return the list in a file; refuse one that is not as the platform writes it."""
    place = Path(path)
    named = _NAME.fullmatch(place.name)
    if named is None:
        raise InvalidInput(
            f"{place.name} is not named like a deletion list, such as "
            f"20260312_4821_Email.csv, with one of {', '.join(_LISTS)}; keep the name "
            "that it was downloaded under"
        )
    try:
        day = datetime.strptime(named["day"], "%Y%m%d").date().isoformat()
    except ValueError:
        raise InvalidInput(f"{place.name} begins with no day of the calendar") from None
    name = named["list"]
    wanted = ["id", "hash", *(["listtype"] if name == REMOVED else [])]
    listed: dict[str, Listed] = {}
    with place.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, strict=True)
        try:
            header = next(rows, [])
            if [word.strip().lower() for word in header] != wanted:
                raise InvalidInput(
                    f"{place.name} does not begin with the line "
                    f"{'ID,Hash,ListType' if name == REMOVED else 'ID,Hash'}; give the "
                    "file as it was downloaded"
                )
            for row in rows:
                if not row:
                    continue
                one = _read_row(row, name)
                if one is None or one.item in listed:
                    what = (
                        "says a number twice" if one else "is not a number and a hash"
                    )
                    raise InvalidInput(
                        f"{place.name}, line {rows.line_num} {what}; give the file as "
                        "it was downloaded"
                    )
                listed[one.item] = one
        except (csv.Error, UnicodeDecodeError):
            raise InvalidInput(
                f"{place.name} is no CSV file in UTF-8; give it as it was downloaded"
            ) from None
    return DropList(place.name, name, day, tuple(listed.values()))


def _read_row(row: Sequence[str], name: str) -> Listed | None:
    """Return the identifier in a row of a list; None if there is none."""
    of = row[2] if name == REMOVED and len(row) == 3 else name
    if len(row) != (3 if name == REMOVED else 2) or of not in FIELDS:
        return None
    digest = to_digest(row[1])
    if digest is None or not _ITEM.fullmatch(row[0]):
        return None
    return Listed(row[0], of, digest)


def write_answers(answers: Mapping[str, int]) -> bytes:
    """Return the file that answers a list: a status by number, in order."""
    lines = [",".join(HEADER), *(f"{item},{code}" for item, code in answers.items())]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def read_answers(path: Path) -> dict[str, int]:
    """Return what a file of ours answered."""
    lines = path.read_text(encoding="ascii").splitlines()
    if not lines or lines[0] != ",".join(HEADER):
        raise InvalidInput(f"{path} is no answer to a deletion list; move it away")
    return {
        item: int(code) for item, _, code in (line.partition(",") for line in lines[1:])
    }


def keep_answers(folder: Path, found: DropList, *, answers: Mapping[str, int]) -> Path:
    """Write the answer to a list into a folder, and return its path.

    If another answer is there, which may be uploaded already, it stays: what changed is
    written beside it, to be sent as an amendment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / found.file
    if path.exists():
        before = read_answers(path)
        for amended in sorted(folder.glob(f"{path.stem}_amend*.csv")):
            before |= read_answers(amended)
        changed = {
            item: code for item, code in answers.items() if before.get(item) != code
        }
        if not changed:
            return path
        n = len(list(folder.glob(f"{path.stem}_amend*.csv"))) + 1
        path = folder / f"{path.stem}_amend{n}.csv"
        answers = changed
    replace_file(path, write_answers(answers))
    return path


def read_identifiers(
    path: str | PathLike[str], columns: Mapping[str, str], *, person: str
) -> Iterator[tuple[str, str, str]]:
    """Yield who has which identifier on which list: the id, the list and the hash.

    Parameters
    ----------
    path
        A CSV, Parquet or Arrow file with a row for each person, or several.
    columns
        The name of the column that has each field, of the fields that there are.
    person
        The column of the people's ids.
    """
    from ..tables.columns import TableColumn
    from ..tables.files import locate_rows, open_table
    from ..tables.people import take_ids

    lists = [name for name, fields in FIELDS.items() if columns.keys() >= {*fields}]
    if not lists:
        raise InvalidInput(
            "no list can be compared with these columns; name those of "
            + ", or of ".join(" and ".join(fields) for fields in FIELDS.values())
        )
    file = open_table(Path(path))
    names = [person, *dict.fromkeys(columns.values())]
    table = file.read_columns(names, names)
    owners = take_ids(TableColumn.of(file, table, name=person))
    texts = {
        field: TableColumn.of(file, table, name=column).clean().to_texts().to_pylist()
        for field, column in columns.items()
    }
    for row, owner in enumerate(owners):
        values = {field: words[row] for field, words in texts.items()}
        for name in lists:
            wanted = [values[field] for field in FIELDS[name]]
            if not all(word.strip() for word in wanted):
                continue
            try:
                yield owner, name, hash_identifier(name, values)
            except InvalidInput as error:
                place = locate_rows(file, [row])
                raise InvalidInput(f"{file.path}, {place}, {name}: {error}") from None
