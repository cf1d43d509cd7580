# SPDX-License-Identifier: Apache-2.0
"""Crashes lose nothing and do nothing twice; and the harness that says so can fail."""

import random
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from expunge.registry import NewRows, Request
from tests.apart import apart
from tests.crash.__main__ import main
from tests.crash.calls import Call, can_record, hexadecimal, read_calls
from tests.crash.client import Memory
from tests.crash.damage import DAMAGES, HARMLESS
from tests.crash.disk import SECTOR, Disk
from tests.crash.expected import Expected
from tests.crash.sabotage import SABOTAGES
from tests.crash.settings import Kills
from tests.crash.story import (
    APPLYING,
    COMMANDS,
    REQUESTS,
    Step,
    Story,
    draw_sample,
)
from tests.crash.writer import ASK_AGAIN, LAST_DAY, ON_WAITING, RIGHTS, Theme, tell
from tests.postgres import Missing, programs
from tests.stores import STORES, without_postgres
from tests.thorough import THOROUGH

recording = pytest.mark.skipif(
    not can_record(), reason="calls cannot be recorded here: apt install strace"
)


class Ended(NamedTuple):
    """How the harness ended, and what it printed."""

    returncode: int
    stdout: str


def strike(options: Sequence[str]) -> Ended:
    printed = StringIO()
    with redirect_stdout(printed):
        code = main(options)
    return Ended(code, printed.getvalue())


def crash(*options: str) -> Ended:
    """Run the harness apart: it forks, which a process with threads should not."""
    return apart(strike, options)


# A kill in each theme of stories, and one of each other kind; make crash has hundreds.
STRIKES = (
    *("--kills", "3", "--lost-locks", "1", "--damaged-journals", "1"),
    *("--full-disks", "1", "--restores", "1", "--changed-windows", "1"),
)


def require_postgres() -> None:
    try:
        programs()
    except Missing as reason:
        without_postgres(reason)


@pytest.mark.slow
class TestRegistry:
    @pytest.mark.parametrize("store", STORES)
    def test_strikes_lose_nothing(self, store: str) -> None:
        if store == "postgresql":
            require_postgres()
        ended = crash("--store", store, *STRIKES, "--steps", "5")
        assert ended.returncode == 0, ended.stdout

    def test_killed_servers_lose_nothing(self) -> None:
        require_postgres()
        ended = crash("--server-kills", "1", "--steps", "5")
        assert ended.returncode == 0, ended.stdout

    @recording
    def test_lost_power_loses_nothing(self) -> None:
        ended = crash("--store", "sqlite", "--power-losses", "6", "--steps", "6")
        assert ended.returncode == 0, ended.stdout


@pytest.mark.slow
class TestHarness:
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=[recording] * (one.kind == "power-losses"))
            for name, one in SABOTAGES.items()
            # Some show in one strike of many: make crash waits for them.
            if THOROUGH or not one.is_rare
        ],
    )
    def test_complains_of_a_broken_registry(self, name: str) -> None:
        broken = SABOTAGES[name]
        kind = broken.kind
        ended = crash(
            *("--store", "sqlite", f"--{kind}", str(broken.n_strikes), "--steps", "6"),
            *("--sabotage", name, "--seed", str(broken.seed)),
        )
        assert ended.returncode == 1, ended.stdout
        assert f"sqlite, {kind}: " in ended.stdout


class TestMemory:
    def test_two_receipts_of_one_request_are_noticed(self) -> None:
        memory = Memory()
        memory.hear("receipt", "r", "one")
        memory.hear("receipt", "r", "one")
        assert not memory.complaints
        memory.hear("receipt", "r", "another")
        assert memory.complaints

    def test_step_is_sent_until_it_is_acknowledged(self) -> None:
        step = next(step for step in tell(0, 20).steps if step.how == "accept")
        memory = Memory()
        for one in step.asked:
            assert memory.lacks(step)
            memory.hear("accepted", one.request)
        assert not memory.lacks(step)

    def test_words_that_nobody_should_say_are_complaints(self) -> None:
        memory = Memory()
        memory.hear("a process broke", "in its own words")
        assert memory.complaints == ["a process broke: in its own words"]


class TestStories:
    def test_repeat_and_share_people(self) -> None:
        story = tell(3, 10)
        assert story.requests() == tell(3, 10).requests()
        models = {story.holding(person) for person in story.leaving()}
        assert models == {("churn",), ("spend",), ("churn", "spend")}

    def test_have_every_command_and_right_where_it_is_possible(self) -> None:
        themes = cycle(Kills.themes)
        stories = [tell(seed, 10, next(themes)) for seed in range(150)]
        steps = [step for story in stories for step in story.steps]
        assert {step.how for step in steps} == {*COMMANDS, *REQUESTS}
        asked = [one for step in steps for one in step.asked]
        assert {one.right for one in asked} == {*RIGHTS}
        answers = [Expected(story).answers.values() for story in stories]
        outcomes = {one.outcome for some in answers for one in some}
        assert outcomes == {"done", "nothing found", "partly", "refused"}

    def test_rest_only_where_nothing_waits_that_is_changed_later(self) -> None:
        n_shorter = 0
        for seed in range(60):
            story = tell(seed, 12, Theme((*ON_WAITING, ASK_AGAIN), RIGHTS))
            for place in range(len(story.steps) + 1):
                first = story.until(place)
                n_first = len(first.steps)
                assert n_first <= place and first.steps == story.steps[:n_first]
                later = {step.request for step in story.steps[n_first:]}
                assert first.requests().keys().isdisjoint(later)
                n_shorter += n_first < place
        assert n_shorter

    def test_restore_no_backup_from_before_rows_came(self) -> None:
        theme = Theme(("back up", "restore", "restore", "add", ASK_AGAIN), RIGHTS)
        n_restored = 0
        for seed in range(60):
            saved = waiting = False
            for step in tell(seed, 12, theme).steps:
                waiting |= any(one.right == "rectify" for one in step.asked)
                comes = step.how == "add" or any(one.rows for one in step.asked)
                comes |= waiting and step.how in APPLYING
                waiting &= step.how not in APPLYING
                saved = (saved and not comes) or step.how == "back up"
                assert saved or step.how != "restore"
                n_restored += step.how == "restore"
        assert n_restored

    def test_expect_who_asked_to_be_gone_from_every_model(self) -> None:
        story = tell(3, 10)
        expected = Expected(story)
        assert expected.forgotten == story.leaving()
        assert not story.leaving() & set().union(*expected.people.values())
        for request, one in story.requests().items():
            held = {name for person in one.subjects for name in story.holding(person)}
            assert expected.changed[request] == held

    def test_expect_who_came_back_in_the_next_fit_alone(self) -> None:
        stories = (tell(seed, 12, Theme(("readmit", "refit"))) for seed in range(40))
        back = [
            (story, step.people[0], later.model)
            for story in stories
            for step, later in pairwise(story.steps)
            if step.how == "readmit" and later.how == "refit"
        ]
        held = [
            person in Expected(story).people[model]
            and person not in Expected(story).forgotten
            for story, person, model in back
            if person in story.samples[model].owners
        ]
        assert held and all(held)


def ask(*rights: str) -> Step:
    """Return a step in which one person asks for things, one after the other."""
    asked = tuple(_asked(right, "asks-0-0-0") for right in rights)
    return Step(0, "accept and apply", asked)


def _asked(right: Any, person: str) -> Request:
    new = draw_sample(5, [person])
    rows = {"churn": NewRows(new.X, new.y)} if right == "rectify" else {}
    details = ("legal-claims", LAST_DAY) if right == "hold" else ("", "")
    return Request(
        (person,), right=right, rows=rows, reason=details[0], until=details[1]
    )


class TestRights:
    """What is expected is what docs/rights.md has in its tables."""

    @pytest.mark.parametrize("together", [True, False])
    @pytest.mark.parametrize(
        ("before", "right", "outcome", "place"),
        [
            ((), "erase", "done", "gone"),
            ((), "object", "done", "gone"),
            ((), "rectify", "done", "in use"),
            ((), "restrict", "done", "restricted"),
            ((), "hold", "done", "held"),
            ((), "lift", "refused not-restricted", "in use"),
            ((), "end-hold", "refused not-held", "in use"),
            (("restrict",), "lift", "done", "in use"),
            (("restrict",), "erase", "done", "gone"),
            (("restrict",), "object", "done", "gone"),
            (("restrict",), "rectify", "done", "restricted"),
            (("restrict",), "hold", "done", "held"),
            (("hold",), "erase", "partly hold", "held"),
            (("hold",), "object", "partly hold", "held"),
            (("hold",), "rectify", "refused hold", "held"),
            (("hold",), "lift", "refused hold", "held"),
            (("hold",), "restrict", "done", "held"),
            (("hold",), "end-hold", "done", "gone"),
            (("restrict", "hold"), "lift", "refused hold", "held"),
            (("erase",), "lift", "nothing found", "gone"),
            (("erase",), "hold", "nothing found", "gone"),
        ],
    )
    def test_meet_as_documented(
        self,
        together: bool,
        before: tuple[str, ...],
        right: str,
        outcome: str,
        place: str,
    ) -> None:
        rights = (*before, right)
        steps = [ask(*rights)] if together else [ask(one) for one in rights]
        person = "asks-0-0-0"
        samples = {
            "churn": draw_sample(1, [person, "stays-0"]),
            "spend": draw_sample(2, ["stays-0"]),
        }
        story = Story(samples, tuple(steps))
        expected = Expected(story)
        last = expected.answers[steps[-1].asked[-1].request]
        assert f"{last.outcome} {last.reason}".strip() == outcome
        apart = expected.apart.get("churn", {}).get(person)
        in_use = person in expected.rows["churn"]
        found = apart.place if apart else "in use" if in_use else "gone"
        assert found == place
        kept_out = place != "in use"
        assert (person in expected.kept_out) == kept_out

    def test_lift_fails_where_the_model_was_fitted_again(self) -> None:
        person = "asks-0-0-0"
        sample = draw_sample(1, [person, "stays-0"])
        refit = Step(1, "refit", model="churn", people=("stays-0",))
        lift = ask("lift")
        steps = (ask("restrict"), refit, lift)
        story = Story({"churn": sample, "spend": sample.of(["stays-0"])}, steps)
        expected = Expected(story)
        last = expected.answers[lift.asked[0].request]
        assert (last.outcome, last.reason) == ("partly", "fitted-again")
        assert not expected.models_of(person)
        assert person not in expected.kept_out


class TestDamage:
    @pytest.mark.parametrize("name", DAMAGES)
    def test_changes_what_was_promised_or_adds_to_it(self, name: str) -> None:
        data = b"".join(b"%d and so on\n" % n for n in range(9))
        for seed in range(50):
            damaged = DAMAGES[name](data, data[:26], random.Random(seed))
            assert damaged != data
            assert (damaged or b"").startswith(data) == (name == HARMLESS)


def hexed(data: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'


class TestCalls:
    def test_words_are_read_as_printed(self) -> None:
        path = Path("/registry/journal")
        line = f"7  write(5<{hexadecimal(path)}>, {hexed(b'a, b')}, 4) = 4\n"
        (call,) = read_calls([line])
        assert (call.name, call.number(0), call.result) == ("write", 5, 4)
        assert (call.path(0), call.data(1)) == (path, b"a, b")

    def test_failed_calls_are_left_out(self) -> None:
        assert not list(read_calls(["7  fsync(5</a>) = -1 EIO (Input/output error)\n"]))

    def test_calls_count_when_they_return(self) -> None:
        lines = (
            "7  fsync(5<\\x61> <unfinished ...>\n",
            "8  fsync(6<\\x62>) = 0\n",
            "7  <... fsync resumed>) = 0\n",
        )
        assert [call.number(0) for call in read_calls(lines)] == [6, 5]

    def test_killed_call_did_not_return(self) -> None:
        assert not list(read_calls(["7  fsync(5<\\x61> <unfinished ...>\n"]))


class TestDisk:
    """Journal is there and holds "old"; descriptor 5 is open on it."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "registry").mkdir()
        (tmp_path / "registry" / "journal").write_bytes(b"old")
        return tmp_path / "registry"

    @pytest.fixture
    def disk(self, root: Path) -> Disk:
        disk = Disk(root)
        disk.see(opened(root / "journal", "O_RDWR"))
        return disk

    def test_written_bytes_may_be_lost(self, disk: Disk, root: Path) -> None:
        disk.see(written(b"new!", 0))
        assert disk.doubtful() == {root / "journal"}
        assert left(disk, lambda: False) == {"journal": b"old"}
        assert left(disk, lambda: True) == {"journal": b"new!"}

    def test_flushed_bytes_stay(self, disk: Disk) -> None:
        disk.see(written(b"new!", 0))
        disk.see(Call("fdatasync", ("5",), 0))
        disk.see(written(b"?", 1))
        assert left(disk, lambda: False) == {"journal": b"new!"}

    def test_long_writes_are_torn_between_sectors(self, disk: Disk) -> None:
        disk.see(written(b"x" * 2 * SECTOR, SECTOR // 2))
        kept = cycle((False, True, False))
        content = left(disk, lambda: next(kept))["journal"]
        assert content == b"old".ljust(SECTOR, b"\0") + b"x" * SECTOR

    def test_cut_may_be_lost(self, disk: Disk) -> None:
        disk.see(Call("ftruncate", ("5", "1"), 0))
        assert left(disk, lambda: False) == {"journal": b"old"}
        assert left(disk, lambda: True) == {"journal": b"o"}

    def test_appended_bytes_go_to_the_end(self, disk: Disk, root: Path) -> None:
        disk.see(opened(root / "journal", "O_WRONLY|O_APPEND"))
        for data in (b"er", b"!"):
            disk.see(Call("write", ("5", hexed(data)), len(data)))
        assert left(disk, lambda: True) == {"journal": b"older!"}

    def test_new_name_is_lost_unless_its_folder_is_flushed(
        self, disk: Disk, root: Path
    ) -> None:
        disk.see(opened(root / "vault", "O_WRONLY|O_CREAT"))
        disk.see(Call("write", ("5", hexed(b"key")), 3))
        disk.see(Call("fsync", ("5",), 0))
        assert left(disk, lambda: False, names=0) == {"journal": b"old"}
        disk.see(Call("fsync", (f"6<{hexadecimal(root)}>",), 0))
        assert left(disk, lambda: False, names=0)["vault"] == b"key"

    def test_renamed_file_is_under_one_name(self, disk: Disk, root: Path) -> None:
        names = (hexed(bytes(root / name)) for name in ("journal", "journal.1"))
        disk.see(Call("rename", tuple(names), 0))
        assert left(disk, lambda: True, names=0) == {"journal": b"old"}
        assert left(disk, lambda: True, names=1) == {"journal.1": b"old"}

    def test_call_of_unknown_effect_is_refused(self, disk: Disk, root: Path) -> None:
        with pytest.raises(NotImplementedError, match="truncate"):
            disk.see(Call("truncate", (hexed(bytes(root / "journal")), "0"), 0))


def opened(path: Path, flags: str) -> Call:
    return Call("openat", ("AT_FDCWD<\\x2f>", hexed(bytes(path)), flags), 5)


def written(data: bytes, offset: int) -> Call:
    arguments = ("5", hexed(data), str(len(data)), str(offset))
    return Call("pwrite64", arguments, len(data))


def left(
    disk: Disk, kept: Callable[[], bool], names: int | None = None
) -> dict[str, bytes]:
    """Return what a power cut leaves."""
    return {path.name: data for path, data in disk.after(names, kept).items()}
