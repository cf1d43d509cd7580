# SPDX-License-Identifier: Apache-2.0
"""Settings: what a registry's folder says about itself, and where things lie in it.

Keys: the secrets of a registry, one file each, numbered as they come.

signing-0.pem, signing-1.pem, ...    the ledger's; the one in force signs
tags-0, tags-1, ...                  under which people become tags; newest first
vault.json                           of checkpoints, see ``stores.vault``

The store notes the ids of the keys of tags: with another key everybody would be a
stranger.
"""

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sqlalchemy import Connection

from ..disk import replace_file, require_private
from ..exceptions import InvalidInput, NoRegistry, StoreFailed
from ..ledger import PublicKey, SigningKey, TagKey, UnusableKey, signing_key, tag_key
from ..ledger.secrets import read_secret
from ..private_model.subjects import SPELLING
from .storage.engine import translate_errors
from .storage.tables import read_metadata, write_metadata

TAG_KEYS = "tag keys"


def create_first_keys(folder: Path) -> SigningKey:
    """Make the first keys if need be; return the one that signs."""
    tag_key(folder / "tags-0")
    return signing_key(folder / "signing-0.pem")


def find_signing_key(folder: Path, public: PublicKey) -> SigningKey:
    """Return the secret half of the key in force."""
    return signing_key(find_signing_path(folder, public), create=False)


def find_signing_path(folder: Path, public: PublicKey) -> Path:
    """Return the file that holds the secret half of a key."""
    for path in reversed(signing_paths(folder)):
        if signing_key(path, create=False).public == public:
            return path
    raise UnusableKey(
        f"no file {folder}/signing-*.pem holds key {public.id}, which is in force; put "
        "it back from its backup: another key could not continue the ledger"
    )


def read_tag_keys(folder: Path) -> tuple[TagKey, ...]:
    """Return the keys of tags, the newest first: it is the one for new people."""
    paths = _numbered(folder, "tags-", "")
    if not paths:
        raise UnusableKey(
            f"{folder} holds no tags-0, and without it nobody can be found; put it "
            "back from its backup"
        )
    return tuple(tag_key(path, create=False) for path in reversed(paths))


def require_tag_keys(connection: Connection, folder: Path) -> None:
    """Refuse keys of tags that are not those under which people were tagged."""
    missing = set(_read_tag_key_ids(connection)) - {
        key.id for key in read_tag_keys(folder)
    }
    if missing:
        raise UnusableKey(
            f"no file {folder}/tags-* holds key {', '.join(sorted(missing))}, under "
            "which people are tagged; put it back from its backup: without it they "
            "cannot be found"
        )


def write_tag_key_ids(connection: Connection, folder: Path) -> None:
    """Write down under which keys people are tagged."""
    ids = {*_read_tag_key_ids(connection), *(key.id for key in read_tag_keys(folder))}
    write_metadata(connection, TAG_KEYS, " ".join(sorted(ids)))


def _read_tag_key_ids(connection: Connection) -> list[str]:
    return read_metadata(connection, TAG_KEYS).split()


def signing_paths(folder: Path) -> Sequence[Path]:
    """Return the files of signing keys, oldest first."""
    return _numbered(folder, "signing-", ".pem")


def next_signing_path(folder: Path) -> Path:
    """Return where the next signing key belongs."""
    return folder / f"signing-{_next(folder, 'signing-', '.pem')}.pem"


def next_tag_path(folder: Path) -> Path:
    """Return where the next key of tags belongs."""
    return folder / f"tags-{_next(folder, 'tags-', '')}"


def _next(folder: Path, before: str, after: str) -> int:
    """Return the number of the next file of a kind."""
    paths = _numbered(folder, before, after)
    last = paths[-1].name.removeprefix(before).removesuffix(after)
    return int(last) + 1


def _numbered(folder: Path, before: str, after: str) -> Sequence[Path]:
    """Return the files of a kind, lowest number first."""
    found = []
    for path in folder.glob(f"{before}*{after}"):
        number = path.name.removeprefix(before).removesuffix(after)
        if number.isdecimal():
            found.append((int(number), path))
    return [path for _, path in sorted(found)]


VERSION = 1
LONGEST_DEADLINE = 3650


@dataclass(frozen=True, slots=True)
class Settings:
    """What was settled when the registry was made.

    Parameters
    ----------
    url
        Of a PostgreSQL database; None keeps everything in a SQLite file.
    deadline_days
        Within how many days the law wants a request done.
    ids
        How ids of people are normalised before they become tags.
    version
        Of the folder's format.
    """

    url: str | None = None
    deadline_days: int = 30
    ids: str = SPELLING
    version: int = VERSION

    def __post_init__(self) -> None:
        """Refuse what no registry has."""
        days: object = self.deadline_days
        if not isinstance(days, int) or not 0 < days <= LONGEST_DEADLINE:
            raise InvalidInput(
                f"deadline_days={days!r}; give days from 1 to {LONGEST_DEADLINE}"
            )
        if not isinstance(self.url, str | None):
            raise InvalidInput("the store's URL is no word; leave it away, or give one")
        if self.ids != SPELLING:
            raise InvalidInput(
                f"the registry spells ids {self.ids!r} and this expunge {SPELLING!r}: "
                "people would not be found; use the expunge that made it"
            )
        if self.version != VERSION:
            raise InvalidInput(
                f"the registry has format {self.version} and this expunge reads "
                f"{VERSION}; use the expunge that made it, or a newer one"
            )

    def __repr__(self) -> str:
        kind = "sqlite" if self.url is None else "postgresql"  # a URL may hold a word
        return f"Settings({kind}, deadline_days={self.deadline_days})"


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the files of a registry are."""

    folder: Path

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders in which files are written."""
        return self.folder, self.keys, self.checkpoints

    @property
    def settings(self) -> Path:
        """What was settled."""
        return self.folder / "registry.json"

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.folder / "expunge.db"

    @property
    def keys(self) -> Path:
        """The folder of secrets."""
        return self.folder / "keys"

    @property
    def vault(self) -> Path:
        """The keys of checkpoints."""
        return self.keys / "vault.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of sealed private states."""
        return self.folder / "checkpoints"

    @property
    def journal(self) -> Path:
        """What a restored database would lack; a link leads to another disk."""
        path = self.folder / "journal"
        return Path(os.path.realpath(path)) if path.is_symlink() else path

    @property
    def journal_mark(self) -> Path:
        """How long the journal is, and its digest."""
        return self.folder / "journal.mark"

    @property
    def lock(self) -> Path:
        """Held by the process that applies."""
        return self.folder / "worker.lock"

    @property
    def public(self) -> Path:
        """The ledger's public keys, to be published."""
        return self.folder / "public.pem"


def read_settings(paths: Paths) -> Settings:
    """Return the settings of the registry in a folder."""
    try:
        with translate_errors():
            raw = json.loads(paths.settings.read_text(encoding="utf-8"))
        if {*raw} != {field.name for field in fields(Settings)}:
            raise ValueError("other fields than were written")
        return Settings(**raw)
    except (FileNotFoundError, NotADirectoryError):
        raise NoRegistry(
            f"{paths.folder} holds no registry; run expunge init, or name its folder"
        ) from None
    except InvalidInput as error:
        raise StoreFailed(f"{paths.settings}: {error}") from None
    except (ValueError, TypeError):
        raise StoreFailed(
            f"{paths.settings} is damaged; put it back from where it was copied"
        ) from None


def require_safe_folder(paths: Paths) -> None:
    """Refuse a registry that others may change, or that this user cannot read.

    What is not there yet is not looked at, but a link to a journal leads somewhere.
    """
    files = [paths.settings, paths.public, paths.journal, paths.journal_mark]
    files += [Path(f"{paths.database}{end}") for end in ("", "-wal", "-shm")]
    for path in (*paths.folders, *files):
        require_private(path)
    for path in signing_paths(paths.keys):
        read_secret(path)  # the other keys are read by whoever opens
    if paths.journal.parent != paths.folder:
        _require_journal_link(paths)


def _require_journal_link(paths: Paths) -> None:
    """Refuse a journal on another disk that is not there, or can be taken away."""
    folder = paths.journal.parent
    if not paths.journal.exists():
        raise StoreFailed(
            f"{paths.folder / 'journal'} is a link to {paths.journal}, which is not "
            "there; mount that disk or mend the link, and make no new journal: the old "
            "one knows who was forgotten"
        )
    if not folder.stat().st_mode & stat.S_ISVTX:  # there others replace their own alone
        require_private(folder)


def write_settings(paths: Paths, settings: Settings) -> None:
    """Write the settings, for the owner's eyes: a URL may hold a password."""
    data = json.dumps(asdict(settings), indent=2) + "\n"
    replace_file(paths.settings, data.encode())
