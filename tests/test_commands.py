# SPDX-License-Identifier: Apache-2.0
"""Commands on a registry: one job each, and nothing changed when they fail."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge.cli import requests
from expunge.cli.common import (
    BUSY,
    DATA_MISSING,
    DONE,
    SPENT,
    STORE_FAILED,
    UNKNOWN,
    WRONG_INPUT,
)
from expunge.cli.models import ModelKind, guess_kind
from expunge.cli.requests import split_into_batches
from expunge.core.packing import dumps
from expunge.exceptions import InvalidInput, StoreFailed
from expunge.ledger import Receipt
from expunge.registry import ErasureRequest, Registry
from expunge.registry.requests import RegistryRequests
from tests.calling import N_PEOPLE, call, copied, make_registry, person, whole
from tests.cli_page import PAGE as MANUAL

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


def test_example_of_the_manual_runs(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EXPUNGE_REGISTRY", raising=False)
    shutil.copy(table, "people.csv")
    example = MANUAL.read_text().partition("## An example")[2].partition("```text\n")[2]
    example = example.partition("```")[0].replace("\\\n", " ")
    commands = re.findall(r"^\$ expunge (.+)$", example, re.MULTILINE)
    assert len(commands) >= 7
    answered = ""
    for command in commands:
        words = [re.sub(r"answered/\w+\.json", answered, w) for w in command.split()]
        done = call(*words)
        assert done.code == DONE, (words, done.err)
        if words[0] == "forget":
            answered = done.out.strip().rpartition(" ")[2]
    assert call("status", "--json").json["outstanding"] == []


class TestInit:
    def test_says_where_keys_are_and_what_to_back_up(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"
        done = call("init", "-r", folder)
        assert done.code == DONE
        for part in (folder / "keys", folder / "public.pem"):
            assert part.exists()
            assert str(part) in done.out
        assert str(folder / "journal") in done.out
        assert "To back up, copy the whole folder" in done.words
        again = call("init", "-r", folder, "--json")
        assert again.json["store"] == "sqlite"
        assert again.json["key"] in call("status", "-r", folder).out

    @pytest.mark.parametrize(
        "options",
        [
            ("--store", "mysql://ada:secret@localhost/db"),
            ("--store", "secret"),
            ("--deadline-days", "0"),
            ("--deadline-days", "soon"),
            ("--deadline-days", "999999"),
        ],
    )
    def test_wrong_options_are_refused(
        self, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        done = call("init", "-r", tmp_path / "registry", *options)
        assert done.code == WRONG_INPUT
        assert "secret" not in done.err
        assert not (tmp_path / "registry").exists()


class TestFit:
    @pytest.mark.parametrize(
        ("y", "kind"),
        [
            (["a", "b", "a"], ModelKind.logistic),
            ([0, 1, 1], ModelKind.logistic),
            ([0.5, 7.25], ModelKind.logistic),
            (["a", "b", "c"], ModelKind.softmax),
            (range(50), ModelKind.softmax),
            (range(51), ModelKind.linear),
            ([0.0, 1.0, 2.0], ModelKind.linear),
        ],
    )
    def test_kind_follows_from_the_target(
        self, y: list[object], kind: ModelKind
    ) -> None:
        assert guess_kind(np.array(y)) is kind

    def test_budget_is_the_default(self, folder: Path) -> None:
        models = {one["name"]: one for one in call("status", "--json").json["models"]}
        assert models["churn"]["certificate"]["status"] == "certified"
        assert models["churn"]["releases_left"] is None
        assert models["dose"]["releases_left"] == 3
        assert models["dose"]["estimator"] == "LinearRegression"
        assert models["dose"]["n_people"] == N_PEOPLE

    def test_words_say_kind_rows_and_promise(self, folder: Path, table: Path) -> None:
        about = ("--target", "outcome", "--subject", "patient")
        done = call("fit", "three", table, *about)
        assert done.code == DONE
        assert "logistic (guessed from the target; choose with --kind)" in done.words
        assert "80 of 40 people, 3 features" in done.words
        assert (
            "epsilon 1, delta 1e-05 for each release, with noise of sigma 0.1"
            in done.words
        )

    def test_without_a_budget_nothing_is_promised(
        self, folder: Path, table: Path
    ) -> None:
        about = (table, "--target", "outcome", "--subject", "patient", "--no-budget")
        done = call("fit", "bare", *about)
        assert done.code == DONE
        assert "none: nothing is promised" in done.words
        assert "nothing is promised" in done.err

    def test_alphas_tune_and_names_travel(self, folder: Path, table: Path) -> None:
        about = (table, "--target", "outcome", "--subject", "patient", "--json")
        done = call("fit", "tuned", *about, "--alphas", "1e-1,1e-2", "--sigma", "1")
        assert done.code == DONE
        assert done.json["estimator"] == "TunedClassifier"
        assert done.json["certificate"]["selection"] == "certified"
        with Registry.open(folder) as registry:
            names = registry.model("tuned").feature_names_in_
        assert list(names) == ["age", "dose", "weight"]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("outcom", "--no-subject"), "did you mean 'outcome'?"),
            (("outcome", "--no-subject"), "column 'patient', line 2: it is not a num"),
            (("outcome", "--subject", "x"), "no column 'x'"),
            (
                ("outcome", "--no-subject", "--drop", "outcome"),
                "column 'outcome' is used twice",
            ),
        ],
    )
    def test_column_that_does_not_fit_is_named(
        self,
        table: Path,
        unchanged: Callable[[], bool],
        options: tuple[str, ...],
        said: str,
    ) -> None:
        done = call("fit", "new", table, "--target", *options)
        assert done.code == WRONG_INPUT
        assert said in done.err
        assert unchanged()

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (("--alphas", "1e-2,a"), "--alphas '1e-2,a'"),
            (("--alphas", "1e-2", "--alpha", "1"), "--alpha with --alphas"),
            (("--alphas", "1", "--kind", "softmax"), "does not work with softmax"),
            (("--no-budget", "--sigma", "2"), "--no-budget with --sigma"),
            (("--no-budget", "--row-norm", "2"), "--no-budget with --row-norm"),
            (("--epsilon", "-1"), "epsilon=-1.0"),
            (("--releases", "0"), "releases=0"),
            (("--kind", "linear"), "--kind linear, but the target holds words"),
        ],
    )
    def test_options_that_do_not_fit_are_named(
        self,
        table: Path,
        unchanged: Callable[[], bool],
        options: tuple[str, ...],
        said: str,
    ) -> None:
        about = ("--target", "outcome", "--subject", "patient")
        done = call("fit", "new", table, *about, *options)
        assert done.code == WRONG_INPUT
        assert said in done.err
        assert unchanged()

    def test_too_many_words_are_no_classes(self) -> None:
        with pytest.raises(InvalidInput, match="51 different words"):
            guess_kind(np.array([f"word {number}" for number in range(51)]))

    def test_taken_name_is_refused(
        self, table: Path, unchanged: Callable[[], bool]
    ) -> None:
        about = (table, "--target", "outcome", "--subject", "patient")
        done = call("fit", "churn", *about)
        assert done.code == WRONG_INPUT
        assert "there is already a model 'churn'" in done.err
        assert unchanged()

    def test_bad_names_and_missing_files(
        self, table: Path, unchanged: Callable[[], bool]
    ) -> None:
        options = ("--target", "outcome", "--drop", "patient", "--no-subject")
        assert call("fit", "new", "nowhere.csv", *options).code == DATA_MISSING
        done = call("fit", "ada@example.org", table, *options)
        assert done.code == WRONG_INPUT
        assert unchanged()

    def test_model_is_replaced_on_request(self, folder: Path, table: Path) -> None:
        options = ("--target", "outcome", "--subject", "patient", "--sigma", "0.5")
        done = call("fit", "churn", table, *options, "--replace", "--json")
        assert done.code == DONE
        assert done.json["release"] == 2


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
        assert "2 people, 1 in no model; nothing was changed" in done.err
        assert "1 id is in no model: 'Ada'" in done.err
        skipped = call(
            "forget", person(1), "Ada", "--dry-run", "--skip-unknown", "--json"
        )
        assert skipped.code == DONE
        assert skipped.json == {
            "n_people": 2,
            "n_unknown": 1,
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
        assert "5 ids are in no model: 'x0', 'x1', 'x2' and 2 more" in error["error"]
        assert unchanged()

    def test_unknown_people_are_left_out_when_told(self, folder: Path) -> None:
        Path("ids.txt").write_text(f"Ada\n{person(1)}\n")
        done = call("forget", "--from", "ids.txt", "--skip-unknown", "--receipts", "r")
        assert done.code == DONE
        assert Path("r/index.csv").read_text().startswith("place,request\n1,\n2,")
        assert "left out 1 id" in done.err
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
        with Registry.open(folder) as other, other._context.hold_lock(0.0):
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
        accept = RegistryRequests.accept

        def full(kept: RegistryRequests, asked: Sequence[ErasureRequest]) -> object:
            with Registry.open(folder) as registry:
                if registry.status().n_requests:
                    raise StoreFailed("no room is left; make room")
            return accept(kept, asked)

        monkeypatch.setattr(RegistryRequests, "accept", full)
        monkeypatch.setattr(
            requests, "split_into_batches", lambda asked: split_into_batches(asked, 2)
        )
        Path("ids.txt").write_text("\n".join(map(person, range(5))))
        done = call("forget", "--from", "ids.txt")
        assert done.code == STORE_FAILED
        for part in ("no room is left", "2 requests are accepted and kept"):
            assert part in done.err
        assert "3 requests were not accepted, send them again" in done.err
        assert call("forget", "--pending", "--json").json == {"n_completed": 2}

    def test_failed_request_of_others_does_not_hold_up_ours(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        apply = RegistryRequests.apply

        def complaining(
            registry: RegistryRequests, *settings: Any, **more: Any
        ) -> None:
            apply(registry, *settings, **more)
            raise InvalidInput("another request cannot be applied")

        monkeypatch.setattr(RegistryRequests, "apply", complaining)
        done = call("forget", person(1))
        assert done.code == DONE
        assert Receipt.from_json(done.out.strip()).entry.n_subjects == 1

    def test_batches_lose_nobody(self) -> None:
        assert list(split_into_batches(range(7), 3)) == [(0, 1, 2), (3, 4, 5), (6,)]
        assert list(split_into_batches([], 3)) == []


def test_forgotten_people_are_readmitted_only_on_request(
    tmp_path: Path, table: Path
) -> None:
    place = tmp_path / "registry"
    fit = ("fit", "again", table, "--target", "outcome", "--subject", "patient")
    assert call("init", "-r", place).code == 0
    assert call(*fit, "-r", place).code == 0
    assert call("forget", person(1), "-r", place).code == 0
    refused = call(*fit, "--replace", "-r", place)
    assert refused.code == WRONG_INPUT and "--readmit" in refused.err
    assert person(1) not in refused.err
    assert call(*fit, "--replace", "--readmit", "-r", place).code == 0


class TestRestore:
    def test_a_sound_journal_is_not_rebuilt(
        self, folder: Path, unchanged: Callable[[], bool]
    ) -> None:
        done = call("restore", "--journal")
        assert done.code == DONE
        assert f"the journal of {folder} is sound; nothing to rebuild" in done.out
        found = call("restore", "--journal", "--json").json
        assert found == {"registry": str(folder), "rebuilt": False, "n_unnamed": 0}
        assert unchanged()

    def test_a_damaged_journal_is_rebuilt(self, folder: Path) -> None:
        (folder / "journal").unlink()
        found = call("restore", "--journal", "--json").json
        assert found["rebuilt"] is True
        (folder / "journal").unlink()
        assert call("restore", "--journal").out.startswith("rebuilt the journal of")
        assert call("status").code == DONE
