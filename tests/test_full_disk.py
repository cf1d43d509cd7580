# SPDX-License-Identifier: Apache-2.0
"""Releases that leave and keys that change on a disk that is full, or nearly."""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from expunge.exceptions import StoreFailed
from expunge.registry import Registry
from tests.registries import require_consistent

BLOCK = 1 << 12
CHANGES: dict[str, Callable[[Registry, Path], object]] = {
    "ship": lambda one, folder: one.models.ship("all", folder / "model.safetensors"),
    "rotate signing": lambda one, folder: one.keys.rotate_signing_key(),
    "rotate tags": lambda one, folder: one.keys.rotate_tag_key(),
}
MOUNT = """
set -e
mount -t tmpfs -o size=4m none "$1"
cd "$2"
shift 2
exec "$@"
"""


def leftovers(folder: Path) -> list[str]:
    """Return what is no file in its place."""
    return sorted(path.name for path in folder.rglob(".*"))


def said(change: Callable[[], object]) -> str:
    """Try a change where there may be no room, and return what is said of it."""
    try:
        change()
    except StoreFailed as error:
        assert "make room" in str(error), error
        return "no room"
    return "done"


def require_sound(folder: Path, place: Path, change: str) -> None:
    """See that with room again the change succeeds, and nothing was lost."""
    with Registry.open(folder) as registry:
        CHANGES[change](registry, place)
        registry.forget(["person 3"])
        require_consistent(registry)
    assert leftovers(folder) == leftovers(place) == []


@contextmanager
def filled(disk: Path, left: int) -> Iterator[None]:
    """Fill a disk but for so many bytes."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(BLOCK)) == BLOCK:
                pass
        except OSError:
            pass
        file.truncate(max(0, file.tell() // BLOCK * BLOCK - left))
    try:
        yield
    finally:
        ballast.unlink()


def fill_and_try(template: Path, disk: Path, change: str) -> dict[str, int]:
    """Try a change with ever more room, until it succeeds; count what was said."""
    answers: dict[str, int] = {}
    for blocks in range(200):
        folder = Path(shutil.copytree(template, disk / "registry"))
        place = disk / "out"
        place.mkdir()
        with Registry.open(folder) as registry:
            registry.models.names()
            with filled(disk, blocks * BLOCK):
                answer = said(partial(CHANGES[change], registry, place))
                assert leftovers(place) == []
        answers[answer] = answers.get(answer, 0) + 1
        require_sound(folder, place, change)
        shutil.rmtree(folder)
        shutil.rmtree(place)
        if answers.get("done") == 2:
            break
    return answers


def can_mount() -> bool:
    """Whether this machine lets a process have mounts of its own."""
    if shutil.which("unshare") is None:
        return False
    mounting = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"]
    return subprocess.run(mounting, capture_output=True).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="mounts of one's own are not allowed here")
@pytest.mark.parametrize("change", CHANGES)
def test_a_full_disk(template: Path, tmp_path: Path, change: str) -> None:
    call = [sys.executable, "-m", __name__, str(template), str(tmp_path), change]
    here = Path(__file__).parent.parent
    mounted = ["unshare", "-m", "sh", "-c", MOUNT, "sh", str(tmp_path), str(here)]
    done = subprocess.run([*mounted, *call], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers: dict[str, int] = json.loads(done.stdout)
    assert answers["no room"] > 1 and answers["done"] == 2


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("size", [0, 64, 1 << 10, 1 << 12, 1 << 15])
def test_files_that_may_not_grow(
    template: Path, tmp_path: Path, change: str, size: int
) -> None:
    folder = Path(shutil.copytree(template, tmp_path / "registry"))
    place = tmp_path / "out"
    place.mkdir()

    def opened_and_changed() -> None:
        with Registry.open(folder) as registry:
            CHANGES[change](registry, place)

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal that comes with it: writing fails instead.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        answer = said(opened_and_changed)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer == "no room" or size > 1 << 10
    assert leftovers(place) == []
    require_sound(folder, place, change)


if __name__ == "__main__":
    given, disk, word = sys.argv[1:]
    sys.stdout.write(json.dumps(fill_and_try(Path(given), Path(disk), word)))
    sys.stdout.flush()
    os._exit(0)
