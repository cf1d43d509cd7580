# SPDX-License-Identifier: Apache-2.0
"""``expunge forget``: requests, receipts, and words for the operator."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from expunge.cli import output
from expunge.cli.output import (
    BUSY,
    DATA_MISSING,
    DONE,
    INTERRUPTED,
    LATE,
    PARTLY,
    REFUSED,
    SPENT,
    STORE_FAILED,
    UNKNOWN,
    WRONG_INPUT,
)
from expunge.core.values import dumps
from expunge.exceptions import InvalidInput, StoreFailed
from expunge.ledger import Receipt
from expunge.registry import Registry
from tests.calling import call, copied, make_registry, person, whole
from tests.registries import accepting_by, after, before_each, today, working

REQUEST = "0123456789abcdef" * 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a registry once."""
    return make_registry(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def table(made: Path) -> Path:
    """Return the table that its models were fitted to."""
    return made.with_name("people.csv")


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the registry to change, which is the default."""
    return copied(made, tmp_path, monkeypatch)


@pytest.fixture
def unchanged(folder: Path) -> Callable[[], bool]:
    """Return a function that tells whether the registry is as it was."""
    before = whole(folder)
    return lambda: whole(folder) == before


class TestForget:
    def test_receipt_alone_goes_to_stdout_and_stands(self, folder: Path) -> None:
        done = call("forget", person(1), person(2))
        assert done.code == DONE
        (line,) = done.out.splitlines()
        assert done.err == "2 people removed from 2 models\n"
        receipt = Receipt.from_json(line)
        assert receipt.entry.n_subjects == 2
        assert set(receipt.certificates) == {"churn", "dose"}
        Path("receipt.json").write_text(done.out)
        key = folder / "public.pem"
        assert call("verify", "receipt.json", "--key", key).code == DONE
        with Registry.open(folder) as registry:
            assert registry.requests.find_models([person(1)]) == {person(1): ()}

    def test_each_line_of_a_file_is_a_request(self, folder: Path) -> None:
        people = [person(number) for number in (3, 4, 5, 4)]
        Path("ids.txt").write_text("\n".join(people))
        done = call("forget", "--from", "ids.txt", "--receipts", "answers")
        assert done.code == DONE
        assert (
            "3 people removed from 2 models; 3 receipts in answers answers/index.csv "
            "says which id became which request" in done.words
        )
        heading, *lines = Path("answers/index.csv").read_text().splitlines()
        assert heading == "place,request"
        places, requests = zip(*(line.split(",") for line in lines), strict=True)
        assert places == ("1", "2", "3", "4")
        assert len(set(requests)) == 3
        assert requests[1] == requests[3]  # the same person, twice
        for request in requests:
            receipt = Receipt.from_json(Path(f"answers/{request}.json").read_bytes())
            assert receipt.entry.n_subjects == 1
        status = call("status", "--json").json
        assert status["n_completed"] == 3
        assert [model["release"] for model in status["models"]] == [2, 2]

    def test_spellings_in_a_file_are_one_request(self, folder: Path) -> None:
        spellings = (person(3), f" {person(3)}", f"{person(3)}\t", person(4))
        Path("ids.txt").write_text("\n".join(spellings))
        done = call("forget", "--from", "ids.txt", "--receipts", "answers", "--json")
        assert done.code == DONE
        first, second, third, other = done.json["listed"]
        assert first == second == third != other
        assert len(done.json["requests"]) == 2

    def test_same_request_in_another_spelling(self, folder: Path) -> None:
        first = call("forget", person(6), "--request", REQUEST)
        again = call("forget", f" {person(6)} ", person(6), "--request", REQUEST)
        assert first.code == again.code == DONE
        assert first.out == again.out
        assert Receipt.from_json(again.out.strip()).entry.n_subjects == 1

    def test_request_is_answered_again_and_done_once(self, folder: Path) -> None:
        first = call("forget", person(6), "--request", REQUEST)
        again = call("forget", person(6), "--request", REQUEST)
        assert first.code == again.code == DONE
        assert first.out == again.out
        assert call("status", "--json").json["n_requests"] == 1
        other = call("forget", person(7), "--request", REQUEST)
        assert other.code == WRONG_INPUT
        assert "asked for something else" in other.err

    def test_json_holds_the_receipt_and_nobody(self, folder: Path) -> None:
        Path("ids.csv").write_text(f"who,why\n{person(8)},left\n{person(9)},moved\n")
        ids = ("--from", "ids.csv", "--column", "who")
        done = call("forget", *ids, "--json", "--receipts", "answers")
        assert done.code == DONE
        requests = [one["request"] for one in done.json["requests"]]
        assert done.json["listed"] == requests
        for one in done.json["requests"]:
            # Nested, and by RFC 8785 the signed bytes again.
            text = dumps(one["receipt"])
            assert Receipt.from_json(text).entry.request == one["request"]
            assert Path(one["file"]).read_text() == text
        assert (done.json["n_people"], done.json["models"]) == (2, ["churn", "dose"])
        written = [path.read_text() for path in Path("answers").iterdir()]
        for text in (done.out, done.err, *written, call("log", "--json").out):
            assert "patient" not in text

    def test_rehearsal_changes_nothing(self, unchanged: Callable[[], bool]) -> None:
        done = call("forget", person(1), "Ada", "--dry-run")
        assert done.code == UNKNOWN
        assert "1 any number churn 1 3 dose" in done.words
        assert "2 people, in no model: 1 id not known here; nothing" in done.err
        told = "in no model: 1 id not known here ('Ada'), looked for as id; nothing"
        assert told in done.err
        skipped = call(
            "forget", person(1), "Ada", "--dry-run", "--skip-unknown", "--json"
        )
        assert skipped.code == DONE
        assert skipped.json == {
            "n_people": 2,
            "n_unknown": 1,
            "n_forgotten": 0,
            "models": {
                "churn": {"n_people": 1, "releases_left": None},
                "dose": {"n_people": 1, "releases_left": 3},
            },
        }
        assert unchanged()

    def test_unknown_people_are_refused_whole(
        self, unchanged: Callable[[], bool]
    ) -> None:
        strangers = [f"x{number}" for number in range(5)]
        Path("ids.txt").write_text("\n".join([person(1), *strangers]))
        for words in (("--from", "ids.txt"), (person(1), "Ada")):
            done = call("forget", *words, "--receipts", "answers")
            assert done.code == UNKNOWN
            assert "nothing was accepted" in done.err
        done = call("forget", "--from", "ids.txt", "--json")
        error = json.loads(done.err)
        assert error["code"] == UNKNOWN
        told = (
            "5 ids not known here ('x0', 'x1', 'x2' and 2 more), looked for as id; no"
        )
        assert told in error["error"]
        assert unchanged()

    def test_operator_can_tell_strangers_from_the_forgotten(self, folder: Path) -> None:
        assert call("forget", person(1)).code == DONE
        before = whole(folder)
        known, gone = call("forget", "Ada"), call("forget", person(1))
        assert "1 id not known here ('Ada')" in known.err
        assert f"1 id already forgotten ('{person(1)}')" in gone.err
        # The exit code tells nobody, and nothing is written.
        assert known.code == gone.code == UNKNOWN
        both = call("forget", "Ada", person(1), "--skip-unknown", "--receipts", "r")
        assert both.code == DONE
        told = "left out, in no model: 1 id not known here, 1 id already forgotten"
        assert told in both.err and person(1) not in both.err
        dry = call("forget", "Ada", person(1), "--dry-run", "--skip-unknown", "--json")
        assert (dry.json["n_unknown"], dry.json["n_forgotten"]) == (2, 1)
        assert whole(folder) == before

    def test_unknown_people_are_left_out_when_told(self, folder: Path) -> None:
        Path("ids.txt").write_text(f"Ada\n{person(1)}\n")
        done = call("forget", "--from", "ids.txt", "--skip-unknown", "--receipts", "r")
        assert done.code == DONE
        assert Path("r/index.csv").read_text().startswith("place,request\n1,\n2,")
        assert "left out, in no model: 1 id not known here" in done.err
        assert "Ada" not in done.err
        again = call("forget", "--from", "ids.txt", "--skip-unknown", "--json")
        assert again.code == DONE
        assert again.json == {
            "n_people": 0,
            "models": [],
            "requests": [],
            "listed": [],
        }
        assert call("status", "--json").json["n_requests"] == 1

    @pytest.mark.parametrize(
        ("one", "code"),
        [
            ("", WRONG_INPUT),
            (" \t", WRONG_INPUT),
            ("a\x00b", WRONG_INPUT),
            ("a\x1b[31mb", WRONG_INPUT),
            ("caf\udce9", WRONG_INPUT),
            ("x" * 10_000_000, WRONG_INPUT),
            ("'; DROP TABLE people; --", UNKNOWN),
            (f"{person(1)}' OR '1'='1", UNKNOWN),
            ("%", UNKNOWN),
            ("\N{SNOWMAN}", UNKNOWN),
            ("[bold]" + person(1), UNKNOWN),
        ],
    )
    def test_odd_ids_do_no_harm(
        self, unchanged: Callable[[], bool], one: str, code: int
    ) -> None:
        for options in ((), ("--dry-run",), ("--json",)):
            done = call("forget", *options, "--", one)
            assert done.code == code
            assert len(done.err) < 1000
            assert "\x1b" not in done.err
        assert unchanged()

    @pytest.mark.parametrize(
        "words",
        [
            (),
            (person(1), "--pending"),
            (person(1), "--from", "ids.txt"),
            ("--from", "ids.txt", "--request", REQUEST),
            (person(1), "--request", "ticket 4711"),
            (person(1), "--request", REQUEST.upper()),
            ("--from", "ids.txt", "--column", "who"),
            (person(1), "--wait", "-1"),
            ("--from", "ids.txt", "--receipts", "taken"),
            ("--pending", "--dry-run"),
        ],
    )
    def test_what_does_not_go_together_is_refused(
        self, unchanged: Callable[[], bool], words: tuple[str, ...]
    ) -> None:
        Path("ids.txt").write_text(person(1))
        Path("taken").mkdir()
        Path("taken/index.csv").write_text("place,request\n")
        assert call("forget", *words).code == WRONG_INPUT
        assert unchanged()

    def test_missing_file_of_ids(self, unchanged: Callable[[], bool]) -> None:
        assert call("forget", "--from", "nowhere.txt").code == DATA_MISSING
        assert unchanged()

    def test_busy_keeps_accepted_requests(self, folder: Path) -> None:
        with Registry.open(folder) as other, working(other):
            done = call("forget", person(1), "--wait", "0", "--request", REQUEST)
            assert done.code == BUSY
            assert f"request {REQUEST} is accepted and kept" in done.err
            stage = call("status", "--request", REQUEST, "--json").json
            assert stage["stage"] == "accepted"
            assert stage["receipt"] is None
            early = call("status", "--request", REQUEST, "--receipt", "r.json")
            assert early.code == WRONG_INPUT
            assert "there is no receipt yet" in early.err
        done = call("forget", "--pending")
        assert done.code == DONE
        assert "1 request completed" in done.out
        assert call("forget", "--pending", "--json").json == {"n_completed": 0}

    def test_used_up_budget_keeps_accepted_requests(self, folder: Path) -> None:
        for number in (1, 2, 3):
            assert call("forget", person(number)).code == DONE
        done = call("forget", person(4))
        assert done.code == SPENT
        assert "all planned releases of model 'dose' have been made" in done.err
        assert "is accepted and kept" in done.err
        shown = call("status")
        assert "1 request accepted, not completed:" in shown.out

    def test_reason_is_said_in_words(self, folder: Path) -> None:
        done = call("request", "lift", person(1), "--request", REQUEST)
        assert done.code == REFUSED
        why = "refused (nothing of the person was restricted)"
        assert done.err.startswith(f"lift, 1 person: {why}; no model changed\n")
        assert f"outcome    {why}\n" in call("status", "--request", REQUEST).out
        held = ("--reason", "legal-claims", "--until", "2999-01-01")
        assert call("request", "hold", person(2), *held).code == DONE
        done = call("forget", person(2))
        why = "partly (rows of the person are kept sealed under a legal hold)"
        assert done.code == PARTLY
        assert done.err.startswith(f"erase, 1 person: {why}; no model changed\n")
        Path("two.txt").write_text(f"{person(2)}\n{person(3)}\n")
        done = call("request", "object", "--from", "two.txt")
        said = f"object, 2 people: 1 done, 1 {why}; 2 models changed\n"
        assert done.code == PARTLY and done.err.startswith(said)

    def test_erasure_of_sealed_rows_changes_no_model(self, folder: Path) -> None:
        assert call("request", "restrict", person(1)).code == DONE
        done = call("forget", person(1))
        assert done.err == "erase, 1 person: done; no model changed\n"

    def test_people_whose_rows_are_sealed_are_known(self, folder: Path) -> None:
        Path("two.txt").write_text(f"{person(1)}\n{person(2)}\n")
        assert call("request", "restrict", "--from", "two.txt").code == DONE
        done = call("forget", person(1), "--dry-run")
        assert done.code == DONE
        assert "1 person, all of them known; nothing was changed" in done.err
        done = call("request", "lift", "--from", "two.txt")
        assert done.code == DONE
        assert done.err == "lift, 2 people: done; 2 models changed\n"

    def test_one_folder_takes_many_receipts(self, folder: Path) -> None:
        for number in (1, 2):
            done = call("forget", person(number), "--receipts", "answers")
            assert done.code == DONE
            said, _, file = done.out.strip().rpartition(" ")
            assert said == "1 person removed from 2 models; receipt in"
            assert Path(file).is_file()
        assert len(list(Path("answers").iterdir())) == 2

    def test_failure_names_what_is_kept_and_what_is_not(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fill() -> None:
            with Registry.open(folder) as registry:
                if registry.status().n_requests:
                    raise StoreFailed("no room is left; make room")

        Path("ids.txt").write_text("\n".join(map(person, range(5))))
        with accepting_by(2), before_each("sending requests", fill):
            done = call("forget", "--from", "ids.txt")
        assert done.code == STORE_FAILED
        for part in ("no room is left", "2 requests are accepted and kept"):
            assert part in done.err
        assert "3 requests were not accepted, send them again" in done.err
        assert call("forget", "--pending", "--json").json == {"n_completed": 2}

    def test_failed_request_of_others_does_not_hold_up_ours(self, folder: Path) -> None:
        def complain() -> None:
            raise InvalidInput("another request cannot be applied")

        with after("applying requests", complain):
            done = call("forget", person(1))
        assert done.code == DONE
        assert Receipt.from_json(done.out.strip()).entry.n_subjects == 1

    def test_nothing_is_destroyed_without_a_yes(
        self,
        made: Path,
        table: Path,
        unchanged: Callable[[], bool],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(output, "is_terminal", lambda: True)
        about = (table, "--target", "outcome", "--subject", "patient")
        for words in (
            ("forget", person(1)),
            ("fit", "churn", *about, "--replace"),
            ("restore", made),
        ):
            done = call(*words)  # which has no answer on its stdin
            assert done.code == INTERRUPTED
            assert "not confirmed; nothing was changed" in done.err
        assert unchanged()
        assert call("forget", person(1), "--yes").code == DONE

    def test_batches_lose_nobody(self, folder: Path) -> None:
        Path("ids.txt").write_text("\n".join(map(person, range(7))))
        with accepting_by(3):
            done = call("forget", "--from", "ids.txt", "--json")
        assert done.code == DONE and done.json["n_people"] == 7
        assert len({*done.json["listed"]}) == 7


class TestExitCodes:
    def test_refused_partly_and_late_differ(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each with its receipt, and a line that says how many."""
        until = str(today() + timedelta(days=9))
        held = ("request", "hold", person(1), "--reason", "legal-claims")
        assert call(*held, "--until", until).code == DONE
        refused = call("request", "lift", person(1))
        assert refused.code == REFUSED and "1 refused" in refused.err
        assert Receipt.from_json(refused.out.strip()).entry.outcome == "refused"
        late = call("forget", person(2), "--submitted", "2020-01-01")
        assert late.code == LATE and "after the deadline" in late.err
        assert Receipt.from_json(late.out.strip()).entry.outcome == "done"
        assert call("forget", person(3)).code == DONE

    def test_partly(self, folder: Path, table: Path) -> None:
        assert call("request", "restrict", person(1)).code == DONE
        again = ("fit", "churn", table, "--target", "outcome", "--subject", "patient")
        done = call(*again, "--sigma", "0.5", "--replace", "--without-forgotten")
        assert done.code == DONE, done.err
        done = call("request", "lift", person(1))
        assert done.code == PARTLY and "only in part" in done.err
        assert Receipt.from_json(done.out.strip()).entry.outcome == "partly"

    def test_a_stranger_ends_as_anybody_does(self, folder: Path) -> None:
        assert call("forget", "nobody", "--answer-strangers").code == DONE
