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
from expunge.demo import values
from expunge.demo.checks import (
    ALTERED_EXPORT,
    EXPORT,
    RECEIPT,
    ROW_NORM,
    SHORTENED_EXPORT,
    TAMPERED_RECEIPT,
    ReplayCheck,
    load_patients,
)
from expunge.demo.page import COLOURS, PLOTS, draw_plots, render_page, sample_steps
from expunge.demo.run import ALPHA, BUDGET, MODEL, DemoOptions, DemoOutput, run_demo
from expunge.display.progress import OnProgress
from expunge.ledger import Receipt, check_export, check_receipt, open_signing_key
from expunge.ledger.merkle import Frontier, build_nodes, inclusion_proof, leaf_hash
from expunge.registry import Registry
from tests.calling import call
from tests.cli_page import help_of

ROOT = Path(__file__).parents[1]
OPTIONS = DemoOptions(seed=3, n_alone=9, n_batch=6)
N_GONE = OPTIONS.n_alone + OPTIONS.n_batch
NO_PLOTS = "There are no plots, because matplotlib is not installed."
# Elements that have no end.
VOID = {"meta"}


@dataclass(frozen=True)
class Run:
    """One run: where it was, what it measured, what it said, and its page."""

    folder: Path
    result: values.DemoResult
    said: list[tuple[str, str]]
    watched: list[tuple[int, int]]
    html: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("demo")
    said: list[tuple[str, str]] = []
    watched: list[tuple[int, int]] = []

    @contextmanager
    def progress(label: str) -> Iterator[OnProgress]:
        yield lambda done, total: watched.append((done, total))

    output = DemoOutput(lambda heading, text: said.append((heading, text)), progress)
    result = run_demo(folder, OPTIONS, output=output)
    return Run(folder, result, said, watched, render_page(result, draw_plots(result)))


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


def start_replay() -> ReplayCheck:
    return ReplayCheck.start(load_patients(), alpha=ALPHA, budget=BUDGET)


def listed(result: values.DemoResult) -> str:
    return json.dumps(result.to_json(), allow_nan=False)


class TestResult:
    def test_everything_came_out_as_promised(self, run: Run) -> None:
        result = run.result
        assert result.find_failures() == ()
        for step in result.answers:
            assert step.distance <= step.radius
            assert step.radius + (result.certificate.tau or 0.0) <= result.radius_budget
        assert result.n_receipts == N_GONE

    def test_every_request_is_a_step(self, run: Run) -> None:
        gone = [step.n_forgotten for step in run.result.answers]
        assert gone == [*range(OPTIONS.n_alone + 1), N_GONE]
        assert all(step.seconds > step.removal_seconds for step in run.result.requests)
        assert run.watched[-1] == (N_GONE, N_GONE)

    def test_people_are_gone_from_the_registry(self, run: Run) -> None:
        patients = load_patients()
        asked = [
            patients.ids[place]
            for place in patients.choose_requesters(OPTIONS.seed, N_GONE)
        ]
        with Registry.open(run.folder / "registry") as registry:
            assert set(registry.requests.find_models(asked).values()) == {()}
            assert registry.status().models[0].n_people == len(patients.ids) - N_GONE
            assert len(list(registry.ledger.entries())) == run.result.n_entries
            assert registry.status().models[0].certificate == run.result.certificate
        assert run.result.certificate.n_subjects_removed == N_GONE
        assert run.result.certificate.status == "certified"

    def test_timeline_has_no_gap(self, run: Run) -> None:
        life = run.result.timeline
        assert life[0].start == 0.0
        assert [stage.stop for stage in life[:-1]] == [s.start for s in life[1:]]
        assert all(stage.start <= stage.stop for stage in life)
        assert life[-2].stop == run.result.requests[-1].seconds

    def test_headings_come_in_order(self, run: Run) -> None:
        headings = list(dict.fromkeys(heading for heading, _ in run.said))
        first = ["People", "Budget", "Forgotten", "Retraining", "Rows read", "Accuracy"]
        assert headings == [
            *first,
            "Time",
            "Release",
            "Receipts",
            "Tampering",
            "Limits",
        ]

    def test_json_holds_every_part(self, run: Run) -> None:
        raw = json.loads(listed(run.result))
        assert set(raw) == {field.name for field in fields(values.DemoResult)}
        assert raw["batch"]["distance"] == run.result.batch.distance
        assert raw["certificate"]["n_subjects_removed"] == N_GONE

    def test_first_look_is_counted(self, run: Run) -> None:
        accepted = [step.decision == "accepted" for step in run.result.requests]
        assert all(accepted)  # these few
        told = values.describe_first_look(run.result.requests)
        assert told.startswith(f"all {OPTIONS.n_alone} answers were found without")
        looked = replace(run.result.requests[4], decision="accepted on rows")
        steps = (*run.result.requests[:4], looked, *run.result.requests[5:])
        assert values.describe_first_look(steps).startswith("4 people left before")

    def test_broken_promise_is_found(self, run: Run) -> None:
        batch = run.result.batch
        for worse in (replace(batch, distance=1.0), replace(batch, radius=1.0)):
            broken = replace(run.result, batch=worse)
            (failure,) = broken.find_failures()
            assert f"FAILED: {failure}" in read(render_page(broken, {})).text
            n_steps = len(broken.steps)
            assert (
                f"In {n_steps} of {n_steps + 1} releases"
                in values.describe_distances(broken)
            )

    def test_broken_file_is_found(self, run: Run) -> None:
        result = run.result
        taken = tuple(replace(copy, valid=True) for copy in result.tampered)
        for broken in (
            replace(result, n_receipts=N_GONE - 1),
            replace(result, receipt=replace(result.receipt, valid=False)),
            replace(result, tampered=taken),
        ):
            assert len(broken.find_failures()) == 1


class TestPatients:
    def test_seed_decides_who_asks(self) -> None:
        patients = load_patients()
        assert patients.choose_requesters(1, 9) == patients.choose_requesters(1, 20)[:9]
        assert patients.choose_requesters(1, 20) != patients.choose_requesters(2, 20)
        assert len(set(patients.choose_requesters(1, 150))) == 150

    def test_rows_keep_the_promised_norm(self) -> None:
        patients = load_patients()
        norms = np.linalg.norm(patients.X, axis=1)
        assert np.hypot(norms, 1.0).max() <= ROW_NORM
        assert len(set(patients.ids)) == len(patients.X) == len(patients.y)

    def test_nothing_is_fitted_on_those_in_the_model(self) -> None:
        # Undone up to each row's length, which is that row's own, the scale must be
        # that of the others alone.
        from sklearn.datasets import load_breast_cancer

        X, _ = load_breast_cancer(return_X_y=True)
        patients = load_patients()
        inside = [int(one.removeprefix("patient-")) for one in patients.ids]
        others = np.delete(X, inside, axis=0)
        scaled = (X[inside] - others.mean(axis=0)) / others.std(axis=0)
        scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
        assert np.allclose(scaled, patients.X, rtol=0.0, atol=1e-12)


class TestReplayCheck:
    def test_retraining_is_what_the_library_learns(self) -> None:
        replay = start_replay().replay_removal(5, 7)
        fresh = start_replay()
        retrained = replay.retrain()
        assert fresh.measure_distance(fresh.retrain()) < 1e-9
        assert (
            0.0 < replay.measure_distance(retrained) <= replay.model.answer.radius.value
        )
        assert fresh.measure_distance(retrained) > replay.measure_distance(retrained)

    def test_record_of_another_model_is_refused(self, run: Run) -> None:
        with Registry.open(run.folder / "registry") as registry:
            record = registry.models.record(MODEL)
        with pytest.raises(RuntimeError, match="of different models"):
            start_replay().replay_removal(5).check_record(record)

    def test_order_within_a_batch_does_not_matter(self) -> None:
        replay = start_replay()
        one, other = (
            replay.replay_removal(*places) for places in ((5, 9, 7), (9, 7, 5))
        )
        assert one.model.answer.radius == other.model.answer.radius


class TestTree:
    @pytest.mark.parametrize("size", [1, 2, 3, 6, 8, 13])
    def test_proof_is_that_of_the_ledger(self, size: int) -> None:
        leaves = [leaf_hash(bytes([i])) for i in range(size)]
        frontier = Frontier()
        for each in leaves:
            frontier = frontier.append(each)
        for index in range(size):
            nodes = list(values.build_tree(leaves, index).walk())
            given = {node.digest for node in nodes if node.role == "proof"}
            proof = inclusion_proof(build_nodes(leaves), index, size=size)
            assert given == {sibling.hex() for sibling in proof}
            assert nodes[0].digest == frontier.tree().root.hex()
            (entry,) = [node for node in nodes if node.role == "entry"]
            assert entry.digest == leaves[index].hex()

    def test_no_two_boxes_stand_in_one_place(self) -> None:
        nodes = list(
            values.build_tree([leaf_hash(bytes([i])) for i in range(77)], 70).walk()
        )
        assert len({(node.x, node.depth) for node in nodes}) == len(nodes)
        closed = [node for node in nodes if not node.children]
        assert [node.x for node in closed] == list(range(len(closed)))
        assert sum(node.stop - node.start for node in closed) == 77

    def test_it_is_the_receipts(self, run: Run) -> None:
        receipt = Receipt.from_json((run.folder / RECEIPT).read_bytes())
        nodes = list(run.result.tree.walk())
        assert run.result.tree.digest == receipt.head.root
        assert {n.digest for n in nodes if n.role == "proof"} == set(receipt.proof)


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
        said = [copy.says for copy in run.result.tampered]
        assert said == [receipt.says, short.says, other.says]

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
        self, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        other = open_signing_key(tmp_path / "other.pem").public.to_pem()
        with Registry.open(run.folder / "registry") as registry:
            request = Receipt.from_json((run.folder / RECEIPT).read_bytes()).entry
            assert demo_run.count_receipts(registry, [request.request]) == 1
            monkeypatch.setattr(registry.keys, "public_pem", lambda: other)
            assert demo_run.count_receipts(registry, [request.request]) == 0


class TestPage:
    def test_is_whole_and_fetches_nothing(self, run: Run) -> None:
        reader = read(run.html)
        assert reader.tags["script"] == reader.tags["link"] == reader.tags["img"] == 0
        assert all(target.startswith("#") for target in reader.references)
        assert not re.search(r"https?:|//|@import|url\((?!#)", run.html)
        assert len(set(reader.ids)) == len(reader.ids)
        assert {target[1:] for target in reader.references} <= set(reader.ids)

    def test_has_every_plot(self, run: Run) -> None:
        reader = read(run.html)
        assert reader.tags["svg"] == reader.tags["figcaption"] == len(PLOTS)
        captions = {one for one in reader.ids if one.endswith("-caption")}
        assert captions == {f"{name}-caption" for name in PLOTS}
        assert NO_PLOTS not in reader.text

    def test_says_what_was_measured(self, run: Run) -> None:
        text, result = read(run.html).text, run.result
        times, last = result.timings, result.batch
        sentences = [
            values.describe_distances(result),
            values.describe_accuracy(result),
            values.describe_first_look(result.requests),
            result.receipt.says,
        ]
        sentences += [words[1:] for words in values.describe_times(result)]
        sentences += [copy.says for copy in result.tampered]
        sentences += [*result.receipt.not_covered, *result.certificate.assumptions]
        figures = [f"{step.distance:.2g}" for step in sample_steps(result.answers)]
        figures += [f"{step.radius:.2g}" for step in sample_steps(result.answers)]
        figures += [
            values.format_percent(step.accuracy)
            for step in sample_steps(result.answers)
        ]
        figures += [
            values.format_milliseconds(stage.stop - stage.start)
            for stage in result.timeline
        ]
        figures += [
            values.format_ratio(times.alone, times.retraining),
            values.format_percent(last.accuracy),
        ]
        for part in [*sentences, *figures]:
            assert part in text, part

    def test_plots_show_what_was_measured(self, run: Run) -> None:
        reader = read(draw_plots(run.result)["timeline"])
        for stage in run.result.timeline:
            assert stage.name in reader.text
            assert values.format_milliseconds(stage.stop - stage.start) in reader.text
        tree = read(draw_plots(run.result)["tree"]).text
        for node in run.result.tree.walk():
            assert node.digest[:4] in tree
        times = run.result.timings
        bars = read(draw_plots(run.result)["times"]).text
        for seconds in (times.alone, times.in_batch, times.removal, times.retraining):
            assert values.format_milliseconds(seconds) in bars

    def test_names_nobody_and_gives_no_secret_away(self, run: Run) -> None:
        shown = run.html + listed(run.result) + "".join(text for _, text in run.said)
        assert not [one for one in load_patients().ids if one in shown]
        assert "patient-" not in shown
        with Registry.open(run.folder / "registry") as registry:
            secrets = [registry.models.record(MODEL).salt.hex()]
        for path in (run.folder / "registry/keys").iterdir():
            content = path.read_bytes()
            text = content.decode("latin-1")
            secrets += [content.hex(), *re.findall(r"[\w+/=]{32,}", text)]
        assert len(secrets) > 4
        assert not [one for one in secrets if one and one in shown]

    def test_noise_free_parameters_stay_out(self, run: Run) -> None:
        shown = run.html + listed(run.result)
        replay = start_replay()
        asking = load_patients().choose_requesters(OPTIONS.seed, N_GONE)
        for held in (replay, replay.replay_removal(*asking)):
            digits = [
                repr(abs(float(one)))[:12] for one in held.model.answer.draft.theta
            ]
            assert not [one for one in digits if one in shown]

    def test_follows_light_dark_and_print(self, run: Run) -> None:
        assert "prefers-color-scheme: dark" in run.html
        assert "@media print" in run.html
        assert 'name="viewport"' in run.html
        assert not [colour for colour in COLOURS if colour in run.html]
        drawn = "".join(draw_plots(run.result).values())
        assert not re.findall(r"#[0-9a-f]{6}\b", drawn)

    def test_equal_results_are_drawn_equally(self, run: Run) -> None:
        assert draw_plots(run.result) == draw_plots(run.result)

    def test_without_matplotlib_tables_are_left(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        assert draw_plots(run.result) == {}
        bare = read(render_page(run.result, {}))
        assert NO_PLOTS in bare.text
        assert bare.tags["svg"] == bare.tags["figure"] == 0
        assert bare.tags["table"] == read(run.html).tags["table"] > 0

    def test_escapes_what_it_is_given(self, run: Run) -> None:
        machine = replace(run.result.machine, processor="<b>fast</b> & cheap")
        html = render_page(replace(run.result, machine=machine), {})
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
        assert done.json == {
            "report": str(tmp_path / "report.html"),
            **run.result.to_json(),
        }

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
    assert first.startswith("Heading     word")
    assert rest
    assert all(line.startswith(" " * HEADING_WIDTH + "word") for line in rest)
    for text in ("It is valid. And more.", "It is valid."):
        assert values.cut_to_first_sentence(text) == "It is valid"


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
