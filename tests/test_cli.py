# SPDX-License-Identifier: Apache-2.0
"""The command line: thin, lazy, and plain about what went wrong."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from benchmarks.data import DataNotFound
from benchmarks.experiments.run import Outcome, Request
from benchmarks.experiments.settings import WORDS
from benchmarks.report import Section, Table, Target
from expunge.cli import bench
from expunge.cli.app import app
from expunge.cli.exits import (
    DATA_MISSING,
    INTERRUPTED,
    NOT_INSTALLED,
    UNEXPECTED,
    Failed,
)
from expunge.exceptions import MissingExtra

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/bench.md").read_text()
RUN = Callable[[Request, bench.Watch], Outcome]


def found(request: Request, watch: bench.Watch) -> Outcome:
    """Return an outcome with one target missed."""
    watch("a piece", 0, 1)
    table = Table(("setting", "asked"), [(request.word, request.scale)])
    section = Section("Found", [table], [Target("RT / IJ", 5.0, low=10.0)])
    return Outcome([section], [], [request.out / "report.html"])


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., "SimpleNamespace"]:
    """Return a function that runs the command with a harness of our own."""

    def call(*options: str, run: RUN = found) -> SimpleNamespace:
        fake = SimpleNamespace(Request=Request, run=run)
        monkeypatch.setattr(bench, "harness", lambda: fake)
        done = CliRunner().invoke(app, ["bench", *options, "--out", str(tmp_path)])
        return SimpleNamespace(
            code=done.exit_code,
            out=done.stdout,
            err=done.stderr,
            error=done.exception,
        )

    return call


Call = Callable[..., SimpleNamespace]


def test_tables_and_verdict_are_printed(call: Call) -> None:
    done = call("mnist", "--full")
    assert done.code == 0
    for part in ("mnist     full", "report.html", "0 of 1 targets reached; MISSED"):
        assert part in done.out


def test_quick_is_the_default(call: Call) -> None:
    assert "mnist    quick" in call("mnist").out


def test_json_is_all_that_is_printed(call: Call) -> None:
    done = call("all", "--json", "--seed", "7")
    raw = json.loads(done.out)
    assert raw["targets"] == [{"name": "RT / IJ", "value": 5.0, "reached": False}]


def test_options_reach_the_harness(call: Call, tmp_path: Path) -> None:
    asked: list[Request] = []

    def run(request: Request, watch: bench.Watch) -> Outcome:
        asked.append(request)
        return found(request, watch)

    call("svhn", "--no-resume", "--seed", "7", "--data-dir", str(tmp_path), run=run)
    (request,) = asked
    assert request == Request("svhn", "quick", tmp_path, tmp_path, 7, resume=False)


def test_missing_data_are_named_without_a_trace(call: Call) -> None:
    def run(request: Request, watch: bench.Watch) -> Outcome:
        raise DataNotFound("mnist/x.gz is wanted")

    done = call("mnist", run=run)
    assert done.code == DATA_MISSING
    assert "expunge: mnist/x.gz is wanted" in done.err
    assert "Traceback" not in done.err
    shown = call("mnist", "--debug", run=run)
    assert isinstance(shown.error, Exception)
    assert isinstance(shown.error.__cause__, DataNotFound)


def test_part_that_could_not_run_is_told_and_counts(call: Call) -> None:
    def run(request: Request, watch: bench.Watch) -> Outcome:
        return Outcome([], ["svhn-dp: torch is not installed"], [])

    done = call("all", run=run)
    assert done.code == DATA_MISSING
    assert "not run: svhn-dp" in done.err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MissingExtra("plots need matplotlib"), NOT_INSTALLED, "need matplotlib"),
        (KeyboardInterrupt(), INTERRUPTED, "what is finished is kept"),
        (ZeroDivisionError("oh"), UNEXPECTED, "ZeroDivisionError: oh"),
    ],
)
def test_failures_end_in_their_codes(
    call: Call, error: BaseException, code: int, said: str
) -> None:
    def run(request: Request, watch: bench.Watch) -> Outcome:
        raise error

    done = call("mnist", run=run)
    assert done.code == code
    assert said in done.err


def test_wrong_word_is_a_usage_error(call: Call) -> None:
    assert call("cifar").code == 2
    assert call("mnist", "--seed", "-1").code == 2


def test_elsewhere_than_in_a_checkout_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="from a checkout") as failure:
        bench.harness(tmp_path)
    assert failure.value.code == NOT_INSTALLED


def test_checkout_has_a_harness() -> None:
    assert bench.harness().Request is Request


def test_words_are_those_of_the_harness() -> None:
    assert [word.value for word in bench.Word] == list(WORDS)


def test_command_is_imported_without_what_it_runs() -> None:
    heavy = ["sklearn", "pandas", "matplotlib", "rich.progress", "benchmarks"]
    code = (
        f"import sys, expunge.cli.app; print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_page_documents_every_option_and_exit_code() -> None:
    done = CliRunner().invoke(app, ["bench", "--help"])
    assert done.exit_code == 0
    options = ("--full", "--quick", "--data-dir", "--out", "--seed", "--no-resume")
    for option in (*options, "--json", "--debug"):
        assert f"`{option}`" in PAGE
        assert option in done.stdout
    for code in (0, UNEXPECTED, 2, DATA_MISSING, NOT_INSTALLED, INTERRUPTED):
        assert f"| {code} |" in PAGE
