# SPDX-License-Identifier: Apache-2.0
"""The demo: what it measures holds, and its page says that and no more."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge.cli.demo import HEADING_WIDTH, put_under
from expunge.cli.output import (
    DONE,
    NOT_INSTALLED,
    NOT_VALID,
    WRONG_INPUT,
)
from expunge.demo import run as demo_run
from expunge.demo.customers import COLUMNS, SUBJECT, write_customers
from expunge.demo.page import draw_plot, render_page
from expunge.demo.run import (
    ALPHA,
    ALTERED_EXPORT,
    BUDGET,
    EXPORT,
    MODEL,
    RECEIPT,
    SHORTENED_EXPORT,
    TABLE,
    TAMPERED_RECEIPT,
    DemoResult,
    count_valid,
    format_share,
    format_time,
    read_customers,
    require_same_answer,
    run_demo,
    shuffle,
    summarise,
    to_sparse,
)
from expunge.display.progress import OnProgress
from expunge.ledger import check_export, check_receipt, open_signing_key
from expunge.linear_model import LogisticRegression
from expunge.promise.verification import Record
from expunge.registry import Registry
from expunge.tables import describe_preprocessing
from tests.calling import call
from tests.cli_page import help_of

ROOT = Path(__file__).parents[1]
SEED, N_PEOPLE, N_GONE, EVERY = 3, 1200, 4, 2
NO_PLOT = "There is no plot, because matplotlib is not installed."
# Elements that have no end.
VOID = {"meta", "img"}
FIRST_CUSTOMER = b"customer 0,2025-04-03,54,Region 11,Family,32.12,110,phone,0,,no"


@dataclass(frozen=True)
class Run:
    """One run: where it was, what it measured, its bars, and its page."""

    folder: Path
    result: DemoResult
    watched: dict[str, list[tuple[int, int]]]
    html: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("demo")
    watched: dict[str, list[tuple[int, int]]] = {}

    @contextmanager
    def progress(label: str) -> Iterator[OnProgress]:
        seen = watched.setdefault(label, [])
        yield lambda done, total: seen.append((done, total))

    result = run_demo(
        folder,
        progress,
        seed=SEED,
        n_people=N_PEOPLE,
        n_requests=N_GONE,
        every=EVERY,
    )
    return Run(folder, result, watched, render_page(result, draw_plot(result)))


class Reader(HTMLParser):
    """Reads a page strictly: what is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "srcset", "data"):
                self.references.append(value or "")

    @property
    def text(self) -> str:
        """All words, one space between them."""
        return " ".join(" ".join(self.words).split())


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def listed(result: DemoResult) -> str:
    return json.dumps(result.to_json(), allow_nan=False)


def said(result: DemoResult, heading: str) -> str:
    """Return what is said under a heading."""
    return " ".join(text for one, text in summarise(result) if one == heading)


def asked() -> list[str]:
    """Return the ids of those who ask."""
    return [f"{SUBJECT} {at}" for at in shuffle(f"asks {SEED}", N_PEOPLE)[:N_GONE]]


class TestResult:
    def test_everything_came_out_as_promised(self, run: Run) -> None:
        result = run.result
        assert result.find_failures() == ()
        for step in result.steps:
            assert step.distance is None or step.distance <= step.radius
            assert step.radius + (result.certificate.tau or 0.0) <= result.radius_budget
        assert result.retrained_distance <= result.last.radius
        assert result.n_receipts == N_GONE

    def test_every_request_is_a_step(self, run: Run) -> None:
        assert [step.n_forgotten for step in run.result.steps] == [*range(N_GONE + 1)]
        assert [n for n, _ in run.result.measured] == [*range(0, N_GONE + 1, EVERY)]
        assert run.watched["forgetting"][-1] == (N_GONE, N_GONE)
        assert {*run.watched} == {"fitting", "forgetting", "retraining"}

    def test_people_are_gone_from_the_registry(self, run: Run) -> None:
        with Registry.open(run.folder / "registry") as registry:
            assert set(registry.requests.find_models(asked()).values()) == {()}
            assert registry.status().models[0].n_people == N_PEOPLE - N_GONE
            assert len(list(registry.ledger.entries())) == run.result.n_entries
            assert registry.status().models[0].certificate == run.result.certificate
        assert run.result.certificate.n_subjects_removed == N_GONE
        assert run.result.certificate.status == "certified"

    def test_terminal_fits_a_screen(self, run: Run) -> None:
        lines = [put_under(heading, text) for heading, text in summarise(run.result)]
        shown = "\n".join(lines).splitlines()
        assert len(shown) <= 18
        assert max(map(len, shown)) <= 80

    def test_json_holds_every_part(self, run: Run) -> None:
        raw = json.loads(listed(run.result))
        assert set(raw) == {field.name for field in fields(DemoResult)}
        assert raw["steps"][-1]["distance"] == run.result.last.distance
        assert raw["certificate"]["n_subjects_removed"] == N_GONE

    def test_broken_promise_is_found(self, run: Run) -> None:
        *steps, last = run.result.steps
        for worse in (replace(last, distance=1.0), replace(last, radius=1.0)):
            broken = replace(run.result, steps=(*steps, worse))
            (failure,) = broken.find_failures()
            assert f"FAILED: {failure}" in read(render_page(broken, "")).text
        assert replace(run.result, retrained_distance=1.0).find_failures()

    def test_broken_file_is_found(self, run: Run) -> None:
        result = run.result
        taken = tuple(replace(copy, valid=True) for copy in result.tampered)
        for broken in (
            replace(result, n_receipts=N_GONE - 1),
            replace(result, receipt=replace(result.receipt, valid=False)),
            replace(result, tampered=taken),
        ):
            assert len(broken.find_failures()) == 1

    def test_changes_are_shares_of_decisions(self, run: Run) -> None:
        first, *others = run.result.steps
        assert first.changed == 0.0
        assert all(0.0 <= step.changed < 0.1 for step in others)
        assert [format_share(one) for one in (0.0, 0.00051, 0.2)] == [
            "none",
            "0.051 %",
            "20 %",
        ]


class TestCustomers:
    def test_seed_decides_who_asks(self) -> None:
        assert shuffle("asks 1", 400) != shuffle("asks 2", 400)
        assert sorted(shuffle("asks 1", 400)) == [*range(400)]

    def test_they_are_the_same_everywhere(self, tmp_path: Path) -> None:
        write_customers(tmp_path / "one.csv", 300, word="a")
        write_customers(tmp_path / "two.csv", 300, word="a")
        write_customers(tmp_path / "other.csv", 300, word="b")
        one, two, other = (
            (tmp_path / f"{name}.csv").read_bytes() for name in ("one", "two", "other")
        )
        assert one == two != other
        assert one.splitlines()[0] == ",".join(COLUMNS).encode()
        # Written down once: another machine must make the same people.
        assert one.splitlines()[1] == FIRST_CUSTOMER

    def test_table_has_the_dirt_of_real_ones(self, run: Run) -> None:
        kinds = {one: done for one, done in run.result.columns}
        assert "days since" in kinds["joined"] and "hashed" in kinds["note"]
        text = (run.folder / TABLE).read_text()
        assert ",," in text and ",n/a," in text and "BASIC" in text
        lines = [line.rpartition(",")[2] for line in text.splitlines()[1:]]
        assert 0.05 < lines.count("yes") / len(lines) < 0.5


class TestReplay:
    def test_the_fit_is_retraining_and_later_models_are_near_it(self, run: Run) -> None:
        (_, fit), *later = run.result.measured
        assert fit < 1e-7
        assert all(0.0 < distance < run.result.noise for _, distance in later)

    def test_record_of_another_model_is_refused(self, run: Run) -> None:
        with Registry.open(run.folder / "registry") as registry:
            record = registry.models.record(MODEL)
        require_same_answer(record, record)
        assert record.radius is not None
        others: list[Record] = [
            replace(record, radius=record.radius * 1.1),
            replace(record, decisions=("fitted",)),
        ]
        for other in others:
            with pytest.raises(RuntimeError, match="of different models"):
                require_same_answer(record, other)

    def test_scikit_learn_sees_the_rows_that_the_model_sees(
        self, run: Run, rng: np.random.Generator
    ) -> None:
        table = read_customers(run.folder / TABLE)
        model = LogisticRegression(
            alpha=ALPHA, preprocessing=describe_preprocessing(table), budget=BUDGET
        ).fit(table.X, table.y, subjects=table.subjects)
        X: Any = demo_run._private(model).remaining_rows()
        v = rng.normal(size=X.X.shape[1])
        assert np.allclose(to_sparse(X.X) @ v, X.X @ v, rtol=1e-12, atol=1e-9)


class TestPublicFiles:
    def test_genuine_ones_are_valid(self, run: Run) -> None:
        pem = (run.folder / "public.pem").read_bytes()
        assert check_receipt((run.folder / RECEIPT).read_bytes(), pem).valid
        assert check_export((run.folder / EXPORT).read_bytes(), pem).valid

    def test_forged_ones_are_refused(self, run: Run) -> None:
        pem = (run.folder / "public.pem").read_bytes()
        receipt = check_receipt((run.folder / TAMPERED_RECEIPT).read_bytes(), pem)
        assert "is not signed by key" in receipt.says
        short = check_export((run.folder / SHORTENED_EXPORT).read_bytes(), pem)
        assert "removed or moved (1)" in short.says
        other = check_export((run.folder / ALTERED_EXPORT).read_bytes(), pem)
        assert "has a different root" in other.says
        found = [copy.says for copy in run.result.tampered]
        assert found == [receipt.says, short.says, other.says]

    @pytest.mark.parametrize(
        "names", [(TAMPERED_RECEIPT, RECEIPT), (ALTERED_EXPORT, EXPORT)]
    )
    def test_one_digit_is_all(self, run: Run, names: tuple[str, str]) -> None:
        pair = ((run.folder / name).read_bytes() for name in names)
        assert sum(a != b for a, b in zip(*pair, strict=True)) == 1

    def test_one_line_is_missing(self, run: Run) -> None:
        short = (run.folder / SHORTENED_EXPORT).read_bytes().splitlines()
        whole = (run.folder / EXPORT).read_bytes().splitlines()
        (gone,) = set(whole) - set(short)
        assert len(short) == len(whole) - 1
        assert json.loads(gone)["kind"] == "request completed"

    def test_receipt_that_does_not_stand_is_not_counted(
        self, run: Run, tmp_path: Path
    ) -> None:
        receipts = [(run.folder / RECEIPT).read_text()]
        assert count_valid(receipts, (run.folder / "public.pem").read_text()) == 1
        other = open_signing_key(tmp_path / "other.pem").public.to_pem()
        assert count_valid(receipts, other) == 0


class TestPage:
    def test_is_whole_and_fetches_nothing(self, run: Run) -> None:
        reader = read(run.html)
        assert reader.tags["script"] == reader.tags["link"] == 0
        assert reader.tags["img"] == reader.tags["figcaption"] == 1
        assert all(one.startswith("data:image/svg") for one in reader.references)
        bare = re.sub(r"data:image/svg\+xml;base64,[\w+/=]+", "", run.html)
        assert not re.search(r"https?:|//|@import|url\(", bare)
        assert NO_PLOT not in reader.text

    def test_says_what_was_measured(self, run: Run) -> None:
        text, result = read(run.html).text, run.result
        parts = [one[1:] for heading, one in summarise(result) if heading != "Auditor"]
        parts += [copy.says for copy in (result.receipt, *result.tampered)]
        parts += [*result.receipt.not_covered, *result.certificate.assumptions]
        parts += [format_time(result.request_seconds), *dict(result.columns)]
        for step in result.steps[::EVERY]:
            parts += [f"{step.distance:.2g}", f"{step.radius:.2g}"]
        for part in parts:
            assert part in text, part

    def test_names_nobody_and_gives_no_secret_away(self, run: Run) -> None:
        shown = run.html + listed(run.result) + str(summarise(run.result))
        assert not re.search(rf"\b{SUBJECT} \d", shown)
        with Registry.open(run.folder / "registry") as registry:
            secrets = [registry.models.record(MODEL).salt.hex()]
        for path in (run.folder / "registry/keys").iterdir():
            content = path.read_bytes()
            text = content.decode("latin-1")
            secrets += [content.hex(), *re.findall(r"[\w+/=]{32,}", text)]
        assert len(secrets) > 4
        assert not [one for one in secrets if one and one in shown]

    def test_follows_light_dark_and_print(self, run: Run) -> None:
        assert "prefers-color-scheme: dark" in run.html
        assert "@media print" in run.html
        assert 'name="viewport"' in run.html

    def test_equal_results_are_drawn_equally(self, run: Run) -> None:
        assert draw_plot(run.result) == draw_plot(run.result)

    def test_without_matplotlib_the_table_is_left(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        assert draw_plot(run.result) == ""
        bare = read(render_page(run.result, ""))
        assert NO_PLOT in bare.text
        assert bare.tags["img"] == bare.tags["figure"] == 0
        assert bare.tags["table"] == read(run.html).tags["table"] > 0

    def test_escapes_what_it_is_given(self, run: Run) -> None:
        receipt = replace(run.result.receipt, says="<b>fast</b> & cheap")
        html = render_page(replace(run.result, receipt=receipt), "")
        assert "&lt;b&gt;fast&lt;/b&gt; &amp; cheap" in html


class TestCommand:
    @pytest.fixture(autouse=True)
    def skip_run(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the command show the result of this module instead of a new one."""
        monkeypatch.setattr(demo_run, "run_demo", lambda *_, **__: run.result)

    def test_writes_the_report_and_says_where(self, run: Run, tmp_path: Path) -> None:
        folder = tmp_path / "new"
        done = call("demo", "--out", folder)
        assert done.code == DONE
        assert (folder / "report.html").read_text() == run.html
        assert str(folder / "report.html") in done.out
        assert f"expunge verify {folder / TAMPERED_RECEIPT} --key" in done.out

    def test_json_is_all_that_is_printed(self, run: Run, tmp_path: Path) -> None:
        done = call("demo", "--out", tmp_path, "--json")
        assert (done.code, done.err) == (DONE, "")
        report = {"report": str(tmp_path / "report.html")}
        assert done.json == report | json.loads(listed(run.result))

    def test_broken_promise_has_an_exit_code(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = replace(run.result, n_receipts=0)
        monkeypatch.setattr(demo_run, "run_demo", lambda *_, **__: broken)
        assert call("demo", "--out", tmp_path).code == NOT_VALID

    def test_folder_in_use_is_left_alone(self, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        kept.write_text("mine")
        for taken in (tmp_path, kept):
            done = call("demo", "--out", taken)
            assert done.code == WRONG_INPUT and "empty or new" in done.err
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]

    def test_without_a_folder_it_makes_a_temporary_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert call("demo").code == DONE
        (made,) = tmp_path.iterdir()
        assert made.name.startswith("expunge-demo-")
        assert made.stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize("wanted", [True, False])
    def test_opens_a_browser_if_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
    ) -> None:
        seen: list[str] = []
        monkeypatch.setattr("webbrowser.open", seen.append)
        call("demo", "--out", tmp_path, *["--open"] * wanted)
        assert seen == [(tmp_path / "report.html").as_uri()] * wanted


def test_lines_are_wrapped_beside_their_headings() -> None:
    first, *rest = put_under("Heading", "word " * 30).splitlines()
    assert first == f"{'Heading':<{HEADING_WIDTH}}{first[HEADING_WIDTH:]}"
    assert first[HEADING_WIDTH:].startswith("word")
    assert rest
    assert all(line.startswith(" " * HEADING_WIDTH + "word") for line in rest)


def test_page_documents_every_option() -> None:
    manual = (ROOT / "docs/demo.md").read_text()
    for option in ("--out", "--seed", "--open", "--json", "--debug"):
        assert f"`{option}`" in manual
        assert option in help_of("demo")


def test_missing_template_library_is_named_before_the_run(tmp_path: Path) -> None:
    code = f"""import sys; sys.modules['jinja2'] = None
sys.argv = ['expunge', 'demo', '--out', {str(tmp_path / "new")!r}]
from expunge.cli import main; main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == NOT_INSTALLED
    assert "the demo needs jinja2" in done.stderr
    assert 'run pip install "expunge[cli,registry,files]"' in done.stderr
    assert not (tmp_path / "new").exists()


def test_command_is_imported_without_what_it_runs() -> None:
    heavy = ["sklearn", "matplotlib", "rich.progress", "sqlalchemy", "webbrowser"]
    code = f"""import sys, expunge.cli.demo
print([m for m in {heavy} if m in sys.modules])"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
