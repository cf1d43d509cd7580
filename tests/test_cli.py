# SPDX-License-Identifier: Apache-2.0
"""The command line: thin, lazy, and plain about what went wrong."""

import ast
import builtins
import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from io import StringIO
from pathlib import Path, PurePosixPath

import pytest
from typer.testing import CliRunner, Result

from expunge import __version__, exceptions
from expunge.cli import output
from expunge.cli.app import COMMANDS, app, build_command
from expunge.cli.output import (
    CODES,
    DATA_MISSING,
    DONE,
    INTERRUPTED,
    MEANINGS,
    NOT_INSTALLED,
    UNEXPECTED,
    WRONG_INPUT,
    CommandFailed,
    confirm,
    explain,
    find_exit_code,
)
from expunge.exceptions import ExpungeError, MissingExtra
from expunge.ledger import UnusableKey
from tests.cli_page import GUIDE, QUOTED, help_of, renewed
from tests.cli_page import PAGE as MANUAL
from tests.house import Source

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/bench.md").read_text()


def call_failing(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, *options: str
) -> Result:
    """Run the demo, which fails."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("expunge.demo.run.run_demo", fail)
    return CliRunner().invoke(app, ["demo", *options])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (FileNotFoundError("x.gz is wanted"), DATA_MISSING, "expunge: x.gz is wanted"),
        (MissingExtra("plots need matplotlib"), NOT_INSTALLED, "need matplotlib"),
        (KeyboardInterrupt(), INTERRUPTED, "finished work is kept"),
        (ZeroDivisionError("oh"), UNEXPECTED, "ZeroDivisionError: oh"),
    ],
)
def test_failures_end_in_their_codes(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    done = call_failing(monkeypatch, error)
    assert done.exit_code == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr or code == UNEXPECTED


def test_debug_shows_the_error_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ExpungeError("it cannot be")
    assert call_failing(monkeypatch, error, "--debug").exception is error


def test_wrong_word_is_a_usage_error() -> None:
    for words in (["bench"], ["demo", "--seed", "-1"]):
        assert CliRunner().invoke(app, words).exit_code == 2


def loaded(module: str, heavy: list[str]) -> str:
    """Return which of some modules are loaded by importing one of ours."""
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_commands_import_nothing_heavy() -> None:
    heavy = ["numpy", "rich", "pyarrow", "sqlalchemy", "cryptography", "benchmarks"]
    homes = {home for home, _ in COMMANDS.values()}
    modules = ", ".join(f"expunge.cli.{one}" for one in ("app", *sorted(homes)))
    assert loaded(modules, heavy) == "[]"


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        (["--help"], []),
        (["alias", "--help"], []),
        (["forgt"], []),
        (["forget", "--help"], ["requests"]),
        (["alias", "find", "--help"], ["aliases"]),
    ],
)
def test_only_the_command_that_is_called_is_imported(
    words: list[str], modules: list[str]
) -> None:
    code = """import atexit, sys
from expunge.cli import main
ours = lambda: sorted(one for one in sys.modules if one.startswith("expunge.cli."))
atexit.register(lambda: print(*ours(), file=sys.stderr))
main()"""
    call = [sys.executable, "-c", code, *words]
    done = subprocess.run(call, capture_output=True, text=True)
    found = done.stderr.splitlines()[-1].split()
    assert found == sorted(
        f"expunge.cli.{one}" for one in ("app", "options", "output", *modules)
    )


@pytest.mark.parametrize("words", COMMANDS)
def test_a_list_of_commands_shows_the_first_sentence_of_each(words: str) -> None:
    assert COMMANDS[words][1] == build_command(words).get_short_help_str(limit=200)


def test_every_function_that_answers_the_command_line_is_listed() -> None:
    listed = {(home, words.replace(" ", "_")) for words, (home, _) in COMMANDS.items()}
    options = {"Folder", "Annotated"}
    defined = {
        (home, node.name)
        for home in {home for home, _ in COMMANDS.values()}
        for node in ast.parse((ROOT / f"src/expunge/cli/{home}.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any(word in ast.unparse(node.args) for word in options)
    }
    assert defined <= listed


def test_a_service_accepts_without_what_fits_and_files_need() -> None:
    heavy = ["sklearn", "pandas", "pyarrow", "matplotlib", "onnx", "safetensors"]
    heavy += ["authlib", "opentelemetry.sdk", "playwright", "scipy"]
    assert loaded("expunge.service.app", heavy) == "[]"


@pytest.mark.parametrize("module", ["ledger.export", "tables"])
def test_files_are_read_without_fitting_libraries(module: str) -> None:
    heavy = ["sklearn", "pandas", "pyarrow", "sqlalchemy"]
    assert loaded(f"expunge.{module}", heavy) == "[]"


class TestExitCodes:
    def test_every_error_named_exists(self) -> None:
        homes = [builtins, exceptions, import_module("expunge.ledger")]
        for name in CODES:
            kinds = [getattr(home, name, None) for home in homes]
            (kind,) = [kind for kind in kinds if kind is not None]
            assert issubclass(kind, Exception)

    def test_what_expunge_raises_on_purpose_is_never_a_bug(self) -> None:
        named = [one for one in vars(exceptions).values() if isinstance(one, type)]
        raised = [one for one in named if one.__module__ == exceptions.__name__]
        assert len(raised) > 10
        for kind in [*raised, UnusableKey]:
            assert issubclass(kind, ExpungeError)
            assert find_exit_code(kind("words")) not in (DONE, UNEXPECTED)

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (exceptions.InvalidInput(""), 2),
            (exceptions.NoRegistry(""), 3),
            (exceptions.NothingSaved(""), 3),
            (FileNotFoundError(2, "No such file", "x"), 3),
            (MissingExtra(""), 4),
            (exceptions.Busy(""), 5),
            (exceptions.UnknownSubject(""), 7),
            (exceptions.UnknownRequest(""), 7),
            (exceptions.StoreFailed(""), 8),
            (exceptions.OtherSchema(""), 8),
            (exceptions.NeedsRestore(""), 8),
            (exceptions.LedgerCorrupt(""), 8),
            (UnusableKey(""), 8),
            (PermissionError(13, "Permission denied", "x"), 8),
            (exceptions.ScheduleExhausted(""), 9),
            (exceptions.CapacityExceeded(""), 9),
            (ImportError(""), 1),
            (ZeroDivisionError(""), 1),
            (CommandFailed("", 6), 6),
        ],
    )
    def test_error_ends_in_its_code(self, error: Exception, code: int) -> None:
        assert find_exit_code(error) == code

    def test_reason_is_one_line_that_says_what_to_do(self) -> None:
        assert explain(exceptions.InvalidInput("a=1;\n give 2")) == "a=1; give 2"
        assert explain(PermissionError(13, "Permission denied", "x.csv")).startswith(
            "x.csv: Permission denied;"
        )

    def test_all_are_in_the_help_and_in_the_manual(self) -> None:
        manual, shown = GUIDE.read_text(), help_of("")
        for code, meaning in MEANINGS.items():
            assert f"| {code} | {meaning} |" in manual
            assert f"{code:>5}  {meaning}" in shown


@pytest.mark.parametrize(
    "call",
    [
        "import expunge.cli; expunge.cli.main()",
        "import runpy; runpy.run_module('expunge', run_name='__main__')",
    ],
)
def test_missing_library_of_the_command_line_is_named(call: str) -> None:
    code = f"import sys; sys.modules['typer'] = None; {call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == NOT_INSTALLED
    assert "needs typer" in done.stderr
    assert 'pip install "expunge[cli,registry,files]"' in done.stderr


@pytest.mark.parametrize(
    ("module", "package", "extras"),
    [
        ("expunge.registry", "sqlalchemy", "registry,files"),
        ("expunge.demo.page", "jinja2", "cli,registry,files"),
    ],
)
def test_import_without_its_library_names_the_extras(
    module: str, package: str, extras: str
) -> None:
    code = f"""import sys; sys.modules[{package!r}] = None
from expunge.exceptions import MissingExtra
try:
    import {module}
except MissingExtra as error:
    print(error)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"needs {package}, which is not installed" in done.stdout
    assert f'run pip install "expunge[{extras}]"' in done.stdout


def test_all_extras_are_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*project["optional-dependencies"]} == {*exceptions.EXTRAS}


def test_every_import_of_an_optional_package_names_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    parts = [optional[extra] for extra in exceptions.EXTRAS]
    packages = {re.split(r"[\[><=]", one)[0] for part in parts for one in part}
    packages -= {"expunge"}  # an extra may take in others
    guarded = (
        "expunge.ledger",
        "expunge.registry",
        "expunge.cli",
        "expunge.service",
    )  # by their own __init__
    for path in sorted((ROOT / "src/expunge").rglob("*.py")):
        source = Source(PurePosixPath(path.relative_to(ROOT)), path.read_text())
        if source.module.startswith(guarded):
            continue
        inside = {
            line
            for node in ast.walk(source.tree)
            if (
                isinstance(node, ast.With)
                and any("needing(" in ast.unparse(one) for one in node.items)
            )
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
            or (isinstance(node, ast.If) and "sys.modules" in ast.unparse(node.test))
            or isinstance(node, ast.Try)
            for line in range(node.lineno, (node.end_lineno or 0) + 1)
        }
        for line, name in source.imports():
            if name.partition(".")[0] in packages:
                assert line in inside, f"{path}:{line} imports {name}"


def test_the_package_runs_as_the_command(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "expunge", "status", "--registry", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == DATA_MISSING
    assert done.stderr.startswith(f"expunge: {tmp_path} holds no registry;")


def test_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == DONE
    assert done.stdout == f"expunge {__version__}\n"


class TestConfirmation:
    @pytest.mark.parametrize(
        ("answer", "agreed"),
        [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)],
    )
    def test_asks_on_a_terminal(
        self, answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "is_terminal", lambda: True)
        monkeypatch.setattr(sys, "stdin", StringIO(answer))
        if agreed:
            confirm("Go on?", yes=False)
            return
        with pytest.raises(CommandFailed, match="nothing was changed") as refusal:
            confirm("Go on?", yes=False)
        assert refusal.value.code == INTERRUPTED

    def test_asks_nothing_otherwise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", None)  # reading from it would fail
        monkeypatch.setattr(output, "is_terminal", lambda: True)
        confirm("Go on?", yes=True)
        monkeypatch.setattr(output, "is_terminal", lambda: False)
        confirm("Go on?", yes=False)

    def test_a_terminal_is_one_at_both_ends(self) -> None:
        code = "from expunge.cli.output import is_terminal; print(is_terminal())"
        ours, theirs = pty.openpty()
        try:
            for stdin, stderr, wanted in (
                (theirs, theirs, "True"),
                (theirs, subprocess.DEVNULL, "False"),
                (subprocess.DEVNULL, theirs, "False"),
            ):
                done = subprocess.run(
                    [sys.executable, "-c", code],
                    stdin=stdin,
                    stderr=stderr,
                    stdout=subprocess.PIPE,
                    text=True,
                )
                assert done.stdout.strip() == wanted
        finally:
            os.close(ours)
            os.close(theirs)


class TestUsage:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["forgt"], "no such command 'forgt'. Did you mean 'forget'?"),
            (["plan", "churn"], "plan is gone; call expunge advise TABLE"),
            (["plan"], "plan is gone; call expunge advise TABLE"),
            (["verify", "x", "--kee", "y"], "no such option: --kee"),
            (["fit", "churn"], "missing argument"),
            (["rotate", "salt"], "for 'KEY': 'salt' is not one of"),
            (["forget", "ada", "--wait", "soon"], "'--wait': 'soon' is not a number"),
        ],
    )
    def test_usage_error_is_one_line(self, words: list[str], said: str) -> None:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == WRONG_INPUT
        assert done.stdout == ""
        assert done.stderr.startswith("expunge: ")
        assert done.stderr.count("\n") == 1
        assert said.lower() in done.stderr.lower()
        assert "--help" in done.stderr
        again = CliRunner().invoke(app, [*words, "--json"])
        error = json.loads(again.stderr)
        assert error == {"error": done.stderr[9:-1], "code": WRONG_INPUT}

    def test_without_a_word_there_is_help(self) -> None:
        done = CliRunner().invoke(app, [])
        assert done.exit_code == WRONG_INPUT
        assert "Commands:" in done.stderr

    def test_bugs_are_json_too(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def broken(path: Path) -> bool:
            raise ZeroDivisionError("oh")

        monkeypatch.setattr(Path, "exists", broken)
        done = CliRunner().invoke(app, ["verify", str(tmp_path), "--json"])
        assert done.exit_code == UNEXPECTED
        assert json.loads(done.stderr)["error"].startswith("ZeroDivisionError: oh;")

    def test_unreadable_file_is_the_callers(self, tmp_path: Path) -> None:
        done = CliRunner().invoke(app, ["verify", str(tmp_path)])
        assert done.exit_code == WRONG_INPUT
        assert "cannot be read (Is a directory)" in done.stderr


class TestManual:
    def test_every_command_is_quoted(self) -> None:
        quoted = {found[1].strip() for found in QUOTED.finditer(MANUAL.read_text())}
        assert quoted == {"", *COMMANDS}

    def test_quotations_are_what_the_commands_say(self) -> None:
        page = MANUAL.read_text()
        assert renewed(page) == page, "stale: run python -m tests.cli_page"

    def test_stale_quotation_would_be_noticed(self) -> None:
        page = MANUAL.read_text()
        assert renewed(page.replace("--skip-unknown  ", "--skip-strangers")) == page

    @pytest.mark.parametrize("word", COMMANDS)
    def test_help_fits_the_screen_and_a_sentence(self, word: str) -> None:
        shown = help_of(word)
        assert max(map(len, shown.splitlines())) <= 80
        assert shown.isascii()
        assert "--json" in shown and "--debug" in shown


class TestCompletion:
    def complete(self, *words: str) -> list[str]:
        """Return what a shell would offer for the last word."""
        asked = {
            "_EXPUNGE_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["expunge", *words]),
            "COMP_CWORD": str(len(words)),
        }
        done = subprocess.run(
            [Path(sys.executable).with_name("expunge")],
            env=os.environ | asked,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    def test_commands(self) -> None:
        assert self.complete("re") == [
            *("recommend", "request", "rectify", "remark", "refuse", "report"),
            *("release", "remove"),
            *("reanchor", "restore"),
        ]

    def test_options_and_their_words(self) -> None:
        assert {"--from", "--dry-run", "--registry"} <= {*self.complete("forget", "--")}
        assert self.complete("rotate", "s") == ["signing"]
        assert self.complete("fit", "--kind", "lo") == ["logistic"]

    def test_bash_takes_the_script(self) -> None:
        script = (
            'eval "$(_EXPUNGE_COMPLETE=source_bash expunge)"; '
            "COMP_WORDS=(expunge ver); COMP_CWORD=1; _expunge_completion expunge; "
            'echo "${COMPREPLY[@]}"'
        )
        folder = Path(sys.executable).parent
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script],
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.stdout.split() == ["verify"], done.stderr
