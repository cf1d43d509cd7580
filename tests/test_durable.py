# SPDX-License-Identifier: Apache-2.0
"""Files that replace others, and what killed processes leave of them."""

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from expunge.disk import (
    delete_leftovers,
    draft_file,
    hidden_path,
    make_scratch_folder,
    open_new,
    replace_file,
    scratch_folder,
)
from expunge.ledger import open_signing_key, open_tag_key
from expunge.registry import Registry
from tests.registries import require_consistent
from tests.users import in_a_child, killed_at

SECRET = b"a secret of somebody"


def drafts(folder: Path) -> list[str]:
    """Return the names of what is not in its place."""
    return sorted(name for name in os.listdir(folder) if name.startswith("."))


class TestKilled:
    """At every call to the system, by a signal that nobody can catch."""

    @pytest.mark.parametrize("make", [open_signing_key, open_tag_key])
    def test_while_a_key_is_made(
        self, tmp_path: Path, make: Callable[[Path], object]
    ) -> None:
        place, left = 0, 0
        while True:
            folder = tmp_path / str(place)
            folder.mkdir()
            killed = killed_at(place, partial(make, folder / "keys" / "key-0"))
            if not killed:
                break
            if (folder / "keys").is_dir():
                left += len(drafts(folder / "keys"))
                made = {name for name in os.listdir(folder / "keys") if name[0] != "."}
                before = {name: (folder / "keys" / name).read_bytes() for name in made}
                delete_leftovers(folder / "keys")
                assert {*os.listdir(folder / "keys")} == made <= {"key-0"}
                for name, content in before.items():
                    assert (folder / "keys" / name).read_bytes() == content
            make(folder / "keys" / "key-0")
            place += 1
        assert place > 5 and left > 3

    def test_while_a_release_is_shipped(self, template: Path, tmp_path: Path) -> None:
        """The next one that is shipped to that folder destroys what was left."""
        folder = Path(shutil.copytree(template, tmp_path / "registry"))
        out = tmp_path / "out"
        out.mkdir()
        mine = out / ".1234.shipping"
        mine.touch()

        def ship() -> None:
            with Registry.open(folder) as registry:
                registry.models.ship("all", out / "model.safetensors")

        place, left = 0, 0
        while killed_at(place, ship):
            left += len(drafts(out)) > 1
            place += 1
            ship()
            assert drafts(out) == [mine.name]
        assert left > 1

    def test_while_a_file_is_replaced(self, tmp_path: Path) -> None:
        place, left = 0, 0
        while True:
            path = tmp_path / str(place) / "sealing"
            path.parent.mkdir()
            path.write_bytes(SECRET)
            with path.open("rb") as old:
                if not killed_at(place, partial(replace_file, path, b"new")):
                    break
                left += len(drafts(path.parent))
                delete_leftovers(path.parent)
                assert os.listdir(path.parent) == ["sealing"]
                content = path.read_bytes()
                assert content in (SECRET, b"new")
                if content == b"new":  # nothing of the old one is left in its blocks
                    assert old.read() == bytes(len(SECRET))
            place += 1
        assert place > 5 and left > 3

    def test_while_keys_are_rotated(self, template: Path, tmp_path: Path) -> None:
        folder = Path(shutil.copytree(template, tmp_path / "registry"))

        def rotate() -> None:
            with Registry.open(folder) as registry:
                registry.keys.rotate_tag_key()

        place = 0
        while killed_at(place, rotate):
            place += 1
        for each in (folder, folder / "keys", folder / "checkpoints"):
            delete_leftovers(each)
            assert drafts(each) == []
        with Registry.open(folder) as registry:
            registry.forget(["person 2"])
            require_consistent(registry)


class TestScratch:
    def test_goes_with_its_process(self, tmp_path: Path) -> None:
        """Also with one that is killed, once somebody makes the next."""

        def leave() -> None:
            folder, _ = make_scratch_folder(tmp_path)
            (folder / "rows").write_bytes(SECRET)
            os.kill(os.getpid(), signal.SIGKILL)

        assert in_a_child(leave) == -signal.SIGKILL
        (left,) = tmp_path.iterdir()
        assert left.stat().st_mode & 0o777 == 0o700
        with scratch_folder(tmp_path) as mine, scratch_folder(tmp_path) as other:
            assert {*tmp_path.iterdir()} == {mine, other}
        assert not list(tmp_path.iterdir())

    def test_leaves_what_is_not_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "expunge-registry").mkdir()
        (tmp_path / "expunge-notes").touch()
        with scratch_folder(tmp_path):
            pass
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == ["expunge-notes", "expunge-registry"]


class TestSweep:
    def test_overwrites_what_it_removes(self, tmp_path: Path) -> None:
        names = [
            ".sealing.new",
            ".signing-1.pem.0123456789abcdef",
            ".public.pem.new",
        ]
        names += [".expunge.db.new", ".expunge.db.new-wal", ".m.3.0011223344556677.new"]
        opened = []
        for name in names:
            (tmp_path / name).write_bytes(SECRET)
            opened.append((tmp_path / name).open("rb"))
        delete_leftovers(tmp_path)
        assert os.listdir(tmp_path) == []
        for file in opened:
            with file:
                assert file.read() == bytes(len(SECRET))

    def test_leaves_what_is_not_its_own(self, tmp_path: Path) -> None:
        names = [
            "sealing",
            "all.3.0123456789abcdef",
            "all.17",
            ".hidden",
            "a.new",
        ]
        names += [".key.0123", ".key.0123456789abcdeg", ".nfs0123456789abcdef", ".old"]
        for name in names:
            (tmp_path / name).write_bytes(SECRET)
        (tmp_path / ".link.0123456789abcdef").symlink_to(tmp_path / "sealing")
        (tmp_path / ".folder.new").mkdir()
        before = {*os.listdir(tmp_path)}
        delete_leftovers(tmp_path)
        assert {*os.listdir(tmp_path)} == before
        assert all((tmp_path / name).read_bytes() == SECRET for name in names)

    def test_of_a_second_name_takes_the_name_alone(self, tmp_path: Path) -> None:
        """A key that has its place, and an old file that nothing replaced yet."""
        path = tmp_path / "sealing"
        path.write_bytes(SECRET)
        for ending in ("old", "0123456789abcdef"):
            os.link(path, hidden_path(path, ending))
        delete_leftovers(tmp_path)
        assert os.listdir(tmp_path) == ["sealing"]
        assert path.read_bytes() == SECRET

    def test_keeps_the_only_copy(self, tmp_path: Path) -> None:
        (tmp_path / ".sealing.old").write_bytes(SECRET)
        delete_leftovers(tmp_path)
        assert (tmp_path / ".sealing.old").read_bytes() == SECRET

    def test_leaves_alone_what_a_living_process_writes(self, tmp_path: Path) -> None:
        path = tmp_path / "sealing"
        draft = hidden_path(path, "new")
        with draft_file(draft, b"new"):
            assert in_a_child(lambda: delete_leftovers(tmp_path)) == 0
            draft.replace(path)
            assert in_a_child(lambda: delete_leftovers(tmp_path)) == 0
        assert os.listdir(tmp_path) == ["sealing"]
        assert path.read_bytes() == b"new"

    def test_removes_it_once_that_is_killed(self, tmp_path: Path) -> None:
        draft = tmp_path / ".sealing.new"

        def half_written() -> None:
            os.write(open_new(draft), SECRET)
            os.kill(os.getpid(), signal.SIGKILL)

        assert in_a_child(half_written) == -signal.SIGKILL
        assert draft.read_bytes() == SECRET
        delete_leftovers(tmp_path)
        assert os.listdir(tmp_path) == []


class TestDraft:
    def test_that_failed_is_destroyed(self, tmp_path: Path) -> None:
        draft = tmp_path / ".key.new"
        with pytest.raises(KeyboardInterrupt):
            with draft_file(draft, SECRET):
                old = draft.open("rb")
                raise KeyboardInterrupt
        with old:
            assert old.read() == bytes(len(SECRET))
        assert os.listdir(tmp_path) == []

    def test_that_has_its_place_is_not(self, tmp_path: Path) -> None:
        draft, path = tmp_path / ".key.new", tmp_path / "key"
        with pytest.raises(KeyboardInterrupt):
            with draft_file(draft, SECRET):
                os.link(draft, path)
                raise KeyboardInterrupt
        assert os.listdir(tmp_path) == ["key"]
        assert path.read_bytes() == SECRET
