# SPDX-License-Identifier: Apache-2.0
"""Commands that look after a registry: status, log, releases, keys, backups, audits."""

import ctypes
import json
import os
import shutil
import stat
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from expunge.cli import output
from expunge.cli.output import (
    DATA_MISSING,
    DONE,
    INTERRUPTED,
    NOT_VALID,
    STORE_FAILED,
    UNKNOWN,
    WRONG_INPUT,
    Result,
    TextTable,
    print_result,
)
from expunge.cli.requests import format_ids
from expunge.core.values import dumps
from expunge.ledger import read_entry
from expunge.linear_model.fitting import read_shipped
from expunge.registry import Registry
from tests.calling import call, copied, make_registry, person, whole, write_table
from tests.registries import harm

REQUEST = "0123456789abcdef" * 2
# Permissions do not bind the superuser; without these capabilities they do.
DROP, DAC_OVERRIDE, DAC_READ_SEARCH = 24, 1, 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a registry, ship a release of it, and forget somebody, once."""
    folder = make_registry(tmp_path_factory.mktemp("made"))
    shipped = folder.with_name("churn.safetensors")
    assert call("release", "churn", "--to", shipped, "-r", folder).code == DONE
    forgotten = ("forget", person(0), "--request", REQUEST, "-r", folder)
    assert call(*forgotten).code == DONE
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the registry to change, which is the default."""
    return copied(made, tmp_path, monkeypatch)


class TestStatus:
    def test_superseded_releases_are_listed_until_withdrawn(self, folder: Path) -> None:
        done = call("status")
        assert done.code == DONE
        assert "1 request, 1 completed" in done.out
        assert "outdated releases still in use" in done.out
        assert "churn.safetensors" in done.out
        (release,) = call("status", "--json").json["outstanding"]
        assert release["model"] == "churn"
        assert release["release"] == 1
        assert call("release", "churn", "--withdraw", "1").code == DONE
        assert call("status", "--json").json["outstanding"] == []

    def test_estimators_are_named_without_loading_them(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            named = {one.name: one.estimator for one in registry.status().models}
            found = {name: type(registry.model(name)).__name__ for name in named}
        assert named == found
        assert named == {"churn": "LogisticRegression", "dose": "LinearRegression"}
        code = """import atexit, sys
from expunge.cli import main
atexit.register(lambda: print("scipy" in sys.modules, file=sys.stderr))
main()"""
        words = [sys.executable, "-c", code, "status"]
        done = subprocess.run(words, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (DONE, "False\n")

    def test_altered_release_is_reported(self, folder: Path) -> None:
        harm(folder, "another release")
        done = call("status")
        assert done.code == STORE_FAILED
        assert "was altered in the database" in done.err

    def test_request_by_its_id(self, folder: Path) -> None:
        done = call("status", "--request", REQUEST, "--receipt", "receipt.json")
        assert done.code == DONE
        assert "stage completed people 1" in done.words
        key = folder / "public.pem"
        assert call("verify", "receipt.json", "--key", key).code == DONE
        told = call("status", "--request", REQUEST, "--json").json
        assert dumps(told["receipt"]) == Path("receipt.json").read_text()

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            (("--request", "f" * 32), UNKNOWN),
            (("--request", "4711"), WRONG_INPUT),
            (("--request", "'; DROP TABLE requests"), WRONG_INPUT),
            (("--receipt", "r.json"), WRONG_INPUT),
            (("--request", "f" * 32, "--receipt", "r.json"), UNKNOWN),
        ],
    )
    def test_what_is_not_there(
        self, folder: Path, options: tuple[str, ...], code: int
    ) -> None:
        assert call("status", *options).code == code
        assert not Path("r.json").exists()

    @pytest.mark.parametrize(
        "words",
        [
            ("status", "--request", "4711"),
            ("cancel", "4711"),
            ("refuse", "4711", "--reason", "unfounded"),
            ("extend", "4711", "--reason", "many", "--notified", "2026-01-01"),
        ],
    )
    def test_what_is_no_id_is_not_asked_to_be_random(
        self, folder: Path, words: tuple[str, ...]
    ) -> None:
        done = call(*words)
        assert done.code == WRONG_INPUT
        assert "'4711'; the id of a request is 32 hexadecimal digits" in done.err
        assert "random" not in done.err and "ledger" not in done.err

    def test_empty_registry_says_how_to_begin(self, tmp_path: Path) -> None:
        assert call("init", "-r", tmp_path / "new").code == DONE
        done = call("status", "-r", tmp_path / "new")
        assert "no model yet; start with expunge fit" in done.out

    def test_tables_stay_within_a_terminal(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lines = (("1", "2026-11-15 13:52", "certified", "m" * 64, "[red]f" * 30),)
        table = TextTable(("release", "made (UTC)", "status", "model", "files"), lines)
        drawn = StringIO()
        drawn.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setenv("TERM", "dumb")  # 80 columns, no colours
        monkeypatch.setattr(sys, "stdout", drawn)
        print_result(Result(text=table), as_json=False)
        assert max(map(len, drawn.getvalue().splitlines())) <= 80
        shown = "".join(drawn.getvalue().split())
        assert shown.count("m") >= 64
        assert shown.count("[") >= 30
        piped = StringIO()
        monkeypatch.setattr(sys, "stdout", piped)
        print_result(Result(text=table), as_json=False)
        assert piped.getvalue().splitlines()[1].endswith("[red]f" * 30)


class TestLog:
    def test_entries_from_one_on(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            entries = list(registry.ledger.entries())
        done = call("log")
        assert len(done.out.splitlines()) == len(entries) + 1
        assert REQUEST in done.out
        assert len(call("log", "--from", "2").out.splitlines()) == len(entries) - 1
        told = call("log", "--from", "2", "--json").json
        spelled = [
            json.dumps(one, sort_keys=True, separators=(",", ":")) for one in told
        ]
        assert [read_entry(text) for text in spelled] == entries[2:]

    def test_export_stands_with_the_public_key(self, folder: Path) -> None:
        done = call("log", "--export", "ledger.jsonl")
        assert done.code == DONE
        command = done.out.splitlines()[1].split()
        assert command[0] == "expunge"
        assert call(*command[1:]).code == DONE
        told = call("log", "--export", "again.jsonl", "--json").json
        assert told == {"export": "again.jsonl"}


class TestRelease:
    def test_file_predicts_and_is_remembered(self, folder: Path) -> None:
        done = call("release", "dose", "--to", "dose.safetensors", "--json")
        assert done.code == DONE
        assert done.json["release"] == 2
        assert done.json["shipped"][0]["file"] == "dose.safetensors"
        read = read_shipped("dose.safetensors")
        assert list(read.feature_names_in_) == ["age", "weight"]
        assert {"age", "weight"} < {*read.get_feature_names_out()}

    def test_graph_may_be_in_single_precision(self, folder: Path) -> None:
        pytest.importorskip("onnx")
        assert call("release", "dose", "--to", "dose.onnx").code == DONE
        double = Path("dose.onnx").stat().st_size
        assert call("release", "dose", "--to", "dose.onnx", "--float32").code == DONE
        assert Path("dose.onnx").stat().st_size < double

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("churn",), WRONG_INPUT),
            (("churn", "--to", "x.onnx", "--withdraw", "1"), WRONG_INPUT),
            (("churn", "--to", "x.pickle"), WRONG_INPUT),
            (("churn", "--to", "x.safetensors", "--float32"), WRONG_INPUT),
            (("nobody", "--to", "x.safetensors"), WRONG_INPUT),
            (("churn", "--withdraw", "9"), WRONG_INPUT),
            (("churn", "--withdraw", "0"), WRONG_INPUT),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, folder: Path, words: tuple[str, ...], code: int
    ) -> None:
        before = whole(folder)
        assert call("release", *words).code == code
        assert whole(folder)[:2] == before[:2]
        assert not list(Path().glob("x.*"))


class TestRemove:
    def test_model_is_gone_and_its_release_listed(self, folder: Path) -> None:
        done = call("remove", "churn")
        assert done.code == DONE
        assert done.out == "churn removed; its rows and keys are destroyed\n"
        assert "1 release left and may be in use" in done.err
        assert "expunge release churn --withdraw 1" in done.err
        status = call("status", "--json").json
        assert [one["name"] for one in status["models"]] == ["dose"]
        assert call("release", "churn", "--withdraw", "1").code == DONE
        assert call("status", "--json").json["outstanding"] == []
        kinds = [one["kind"] for one in call("log", "--json").json]
        assert kinds[-2:] == ["model removed", "release withdrawn"]
        assert call("log", "--export", "ledger.jsonl").code == DONE
        key = folder / "public.pem"
        assert call("verify", "ledger.jsonl", "--key", key).code == DONE

    def test_json(self, folder: Path) -> None:
        done = call("remove", "dose", "--json")
        apart = {"n_restricted": 0, "n_held": 0, "first_end": ""}
        removed = {"removed": "dose", "outstanding": []}
        assert done.json == {**removed, "set_aside": apart}

    def test_rows_that_are_sealed_apart_stay(self, folder: Path) -> None:
        held = ("--reason", "legal-claims", "--until", "2999-01-01")
        assert call("request", "hold", person(1), *held).code == DONE
        assert call("request", "restrict", person(2)).code == DONE
        apart = "sealed apart: 1 restricted, 1 held, the first until 2999-01-01"
        done = call("remove", "dose")
        words = "dose removed; its rows and keys are destroyed, except rows that are "
        assert done.words == f"{words}restricted or held {apart}"
        told = call("remove", "churn", "--json").json
        assert told["set_aside"]["n_held"] == 1
        shown = call("status").out
        assert "no model; fit one with expunge fit" in shown
        assert "yet" not in shown
        assert apart in shown
        assert "outdated releases still in use" in shown
        assert call("request", "end-hold", person(1)).code == DONE

    def test_is_not_done_twice_or_unasked(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = whole(folder)
        with monkeypatch.context() as patch:
            patch.setattr(output, "is_terminal", lambda: True)
            assert call("remove", "churn").code == INTERRUPTED
        assert call("remove", "nobody").code == WRONG_INPUT
        assert whole(folder) == before
        assert call("remove", "churn", "--yes").code == DONE
        again = call("remove", "churn")
        assert again.code == WRONG_INPUT
        assert "model 'churn' was removed" in again.err


class TestKeys:
    def test_signing_key_changes_and_receipts_stay(self, folder: Path) -> None:
        before = call("status", "--json").json["key"]
        done = call("rotate", "signing")
        assert done.code == DONE
        after = call("status", "--json").json["key"]
        assert after != before
        assert after in done.out
        assert call("forget", person(1), "--receipts", "answers").code == DONE
        assert (
            call("status", "--request", REQUEST, "--receipt", "old.json").code == DONE
        )
        new = next(Path("answers").glob("*.json"))
        for receipt in ("old.json", new):
            key = folder / "public.pem"
            assert call("verify", receipt, "--key", key).code == DONE

    def test_people_are_found_under_the_old_tags(self, folder: Path) -> None:
        assert call("rotate", "tags", "--json").json["rotated"] == "tags"

    def test_state_that_knows_nobody_who_left(self, folder: Path) -> None:
        name = call("status", "--json").json["models"][0]["name"]
        assert call("reanchor", name, "--json").json == {"reanchored": name}
        assert (
            "private state rebuilt from the remaining rows"
            in call("reanchor", name).out
        )
        assert call("reanchor", "other").code == WRONG_INPUT
        assert call("forget", person(1)).code == DONE


class TestRestore:
    def test_nobody_comes_back_with_a_backup(self, folder: Path) -> None:
        backup = shutil.copytree(folder, "backup")
        assert call("forget", person(1)).code == DONE
        shutil.copy(backup + "/expunge.db", folder / "expunge.db")
        refused = call("status")
        assert refused.code == STORE_FAILED
        assert "restore" in refused.err
        done = call("restore", backup)
        assert done.code == DONE
        assert "2 requests are completed" in done.out
        assert call("forget", person(1)).code == UNKNOWN

    def test_missing_backup(self, folder: Path) -> None:
        assert call("restore", "nowhere").code == DATA_MISSING
        Path("empty").mkdir()
        before = whole(folder)
        assert call("restore", "empty").code == WRONG_INPUT
        assert whole(folder) == before


class TestAudit:
    def test_record_is_opened_and_fits(self, folder: Path) -> None:
        done = call("audit", "churn", "--record", "record.json")
        assert done.code == DONE
        assert done.out.count("VALID") == 2
        assert stat.S_IMODE(os.stat("record.json").st_mode) == 0o600
        models = call("status", "--json").json["models"]
        Path("certificate.json").write_text(json.dumps(models[0]["certificate"]))
        checked = call("verify", "certificate.json", "--record", "record.json")
        assert checked.code == DONE
        again = call("audit", "churn", "--record", "record.json")
        assert again.code == WRONG_INPUT
        assert "record.json already exists" in again.err

    def test_trial_is_run_on_demand(self, folder: Path) -> None:
        done = call("audit", "churn", "--trials", "200", "--json")
        assert done.code == DONE
        assert done.json["trial"]["passes"] is True
        assert done.json["trial"]["n_draws"] == 200
        assert "trial: PASSES" in call("audit", "churn", "--trials", "200").out
        assert call("audit", "churn", "--trials", "3").code == WRONG_INPUT
        assert call("audit", "nobody").code == WRONG_INPUT

    def test_ledger_that_was_touched_is_not_valid(self, folder: Path) -> None:
        harm(folder, "another word in the ledger")
        done = call("audit", "dose")
        assert done.code == NOT_VALID
        assert "ledger: NOT VALID" in done.out
        assert call("audit", "dose", "--json").json["certificate"]["valid"] is True


class TestPostgres:
    def test_life_of_a_person(self, database_url: str, tmp_path: Path) -> None:
        place = ("-r", tmp_path / "registry")
        done = call("init", "--store", database_url, *place)
        assert done.code == DONE
        assert "store postgresql" in done.words
        assert database_url not in done.out
        table = write_table(tmp_path / "people.csv")
        about = ("--target", "outcome", "--subject", "patient", "--sigma", "0.5")
        assert call("fit", "churn", table, *about, *place).code == DONE
        (tmp_path / "receipt.json").write_text(call("forget", person(1), *place).out)
        key = tmp_path / "registry/public.pem"
        checked = call("verify", tmp_path / "receipt.json", "--key", key)
        assert checked.code == DONE
        assert call("status", "--json", *place).json["n_completed"] == 1


class TestDamage:
    def test_missing_registry(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("")
        for words in (
            ("status",),
            ("forget", "Ada"),
            ("log",),
            ("audit", "churn"),
            ("rotate", "signing"),
            ("release", "churn", "--to", "x.onnx"),
        ):
            for place in (tmp_path / "nowhere", tmp_path, file):
                done = call(*words, "-r", place)
                assert done.code == DATA_MISSING
                assert "expunge init" in done.err
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"url": 5}', '{"who": "Ada"}'])
    def test_damaged_settings(self, folder: Path, content: str) -> None:
        (folder / "registry.json").write_text(content)
        done = call("forget", person(1))
        assert done.code == STORE_FAILED
        assert "registry.json" in done.err
        assert (folder / "registry.json").read_text() == content

    def test_damaged_database(self, folder: Path) -> None:
        for path in folder.glob("expunge.db*"):
            path.unlink()
        (folder / "expunge.db").write_bytes(b"not a database" * 1000)
        done = call("forget", person(1), "--json")
        assert done.code == STORE_FAILED
        assert json.loads(done.err)["code"] == STORE_FAILED

    def test_database_that_is_gone(self, folder: Path) -> None:
        for path in folder.glob("expunge.db*"):
            path.unlink()
        assert call("forget", person(1)).code == STORE_FAILED

    def test_older_tables(self, folder: Path) -> None:
        harm(folder, "tables of another time")
        done = call("status")
        assert done.code == STORE_FAILED
        assert "make a new registry" in done.err

    def test_key_that_others_can_read(self, folder: Path) -> None:
        (folder / "keys/tags-0").chmod(0o644)
        done = call("forget", person(1))
        assert done.code == STORE_FAILED
        assert "chmod 600" in done.err

    def test_folder_that_cannot_be_written(self, folder: Path) -> None:
        before = whole(folder)
        paths = [
            folder,
            folder / "keys",
            *(p for p in folder.rglob("*") if p.is_file()),
        ]
        modes = {path: path.stat().st_mode for path in paths}
        for path in paths:
            path.chmod(0o500 if path.is_dir() else 0o400)
        done = subprocess.run(
            [Path(sys.executable).with_name("expunge"), "forget", person(1)],
            preexec_fn=bound_by_permissions,
            capture_output=True,
            text=True,
        )
        for path, mode in modes.items():
            path.chmod(mode)
        assert done.returncode == STORE_FAILED, done.stderr
        assert done.stderr.startswith("expunge: ")
        assert done.stderr.count("\n") == 1
        assert whole(folder)[:3] == before[:3]


def bound_by_permissions() -> None:
    """Let the mode of a file count for the superuser too."""
    if os.geteuid() == 0:
        for capability in (DAC_OVERRIDE, DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(DROP, capability, 0, 0, 0)


def test_ids_are_shown_cut_short_and_in_ascii() -> None:
    assert format_ids(["a\x1b", "x" * 50]) == r"'a\x1b', '" + "x" * 40 + "'..."
    assert format_ids(list("abcd")) == "'a', 'b', 'c' and 1 more"


def test_json_has_no_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"radius": [float("inf"), 1.5], "n": (1, None)}
    print_result(Result(data), as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "radius": [None, 1.5],
        "n": [1, None],
    }


def test_interruption_is_told_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Registry, "status", interrupted)
    assert call("status").code == 130


def test_columns_of_a_table_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    table = TextTable(("entry", "day"), (("1", "2024-01-01"), ("10", "")))
    print_result(Result(text=table), as_json=False)
    assert capsys.readouterr().out == "entry  day\n1      2024-01-01\n10\n"
