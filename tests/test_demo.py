# SPDX-License-Identifier: Apache-2.0
"""The demonstration: what it measures holds, and its page says that and no more."""

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
import typer
from typer.testing import CliRunner

from expunge.cli import demo
from expunge.cli.demo import Demo
from expunge.cli.options import DOES_NOT_STAND, DONE, WRONG_INPUT, Failed
from expunge.demo import run as demo_run
from expunge.demo import values
from expunge.demo.checks import (
    ALTERED_EXPORT,
    EXPORT,
    FORGED_RECEIPT,
    RECEIPT,
    ROW_NORM,
    SHORTENED_EXPORT,
    Witness,
    patients,
)
from expunge.demo.page import CAPTIONS, NO_PLOTS, page, sampled
from expunge.demo.plots import COLOURS, PLOTS, drawings
from expunge.demo.run import (
    ALPHA,
    CONTRACT,
    MODEL,
    Script,
    Voice,
    Watch,
    standing,
    told,
)
from expunge.ledger import Receipt, check_export, check_receipt, open_signing_key
from expunge.ledger.merkle import Frontier, build_nodes, inclusion_proof, leaf_hash
from expunge.registry import Registry

ROOT = Path(__file__).parents[1]
SCRIPT = Script(seed=3, n_alone=9, n_batch=6)
N_GONE = SCRIPT.n_alone + SCRIPT.n_batch
# Elements that have no end.
VOID = {"meta"}


@dataclass(frozen=True)
class Run:
    """One run: where it was, what it measured, what it said, and its page."""

    folder: Path
    story: values.Story
    said: list[tuple[str, str]]
    watched: list[tuple[int, int]]
    html: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("demo")
    said: list[tuple[str, str]] = []
    watched: list[tuple[int, int]] = []

    @contextmanager
    def progress(label: str) -> Iterator[Watch]:
        yield lambda done, total: watched.append((done, total))

    voice = Voice(lambda heading, text: said.append((heading, text)), progress)
    story = told(folder, SCRIPT, voice)
    return Run(folder, story, said, watched, page(story, drawings(story)))


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


def listed(story: values.Story) -> str:
    return json.dumps(story.to_json(), allow_nan=False)


class TestStory:
    def test_everything_came_out_as_promised(self, run: Run) -> None:
        story = run.story
        assert story.failures() == ()
        for step in story.answers:
            assert step.distance <= step.radius
            assert step.radius + (story.certificate.tau or 0.0) <= story.budget
        assert story.n_receipts == N_GONE

    def test_every_request_is_a_step(self, run: Run) -> None:
        gone = [step.n_forgotten for step in run.story.answers]
        assert gone == [*range(SCRIPT.n_alone + 1), N_GONE]
        assert all(step.seconds > step.removal_seconds for step in run.story.requests)
        assert run.watched[-1] == (N_GONE, N_GONE)

    def test_people_are_gone_from_the_registry(self, run: Run) -> None:
        people = patients()
        asked = [people.ids[place] for place in people.asking(SCRIPT.seed, N_GONE)]
        with Registry.open(run.folder / "registry") as registry:
            assert set(registry.requests.find_models(asked).values()) == {()}
            assert registry.status().models[0].n_people == len(people.ids) - N_GONE
            assert len(list(registry.ledger.entries())) == run.story.n_entries
            assert registry.status().models[0].certificate == run.story.certificate
        assert run.story.certificate.n_subjects_removed == N_GONE
        assert run.story.certificate.status == "certified"

    def test_timeline_has_no_gap(self, run: Run) -> None:
        life = run.story.life
        assert life[0].start == 0.0
        assert [stage.stop for stage in life[:-1]] == [s.start for s in life[1:]]
        assert all(stage.start <= stage.stop for stage in life)
        assert life[-2].stop == run.story.requests[-1].seconds

    def test_it_is_told_in_order(self, run: Run) -> None:
        headings = list(dict.fromkeys(heading for heading, _ in run.said))
        first = ["People", "Contract", "Plan", "Forgotten", "Retraining", "Accuracy"]
        assert headings == [*first, "Time", "Release", "Receipts", "Forgery", "Limits"]

    def test_json_holds_every_part(self, run: Run) -> None:
        raw = json.loads(listed(run.story))
        assert set(raw) == {field.name for field in fields(values.Story)}
        assert raw["batch"]["distance"] == run.story.batch.distance
        assert raw["certificate"]["n_subjects_removed"] == N_GONE

    def test_broken_promise_is_found(self, run: Run) -> None:
        batch = run.story.batch
        for worse in (replace(batch, distance=1.0), replace(batch, radius=1.0)):
            broken = replace(run.story, batch=worse)
            (failure,) = broken.failures()
            assert f"FAILED: {failure}" in read(page(broken, {})).text
            n_steps = len(broken.steps)
            assert f"In {n_steps} of {n_steps + 1} releases" in values.nearness(broken)

    def test_broken_paper_is_found(self, run: Run) -> None:
        story = run.story
        taken = tuple(replace(forgery, stands=True) for forgery in story.forgeries)
        for broken in (
            replace(story, n_receipts=N_GONE - 1),
            replace(story, opened=replace(story.opened, stands=False)),
            replace(story, forgeries=taken),
        ):
            assert len(broken.failures()) == 1


class TestPeople:
    def test_seed_decides_who_asks(self) -> None:
        people = patients()
        assert people.asking(1, 9) == people.asking(1, 20)[:9]
        assert people.asking(1, 20) != people.asking(2, 20)
        assert len(set(people.asking(1, 150))) == 150

    def test_rows_keep_the_promised_norm(self) -> None:
        people = patients()
        norms = np.linalg.norm(people.X, axis=1)
        assert np.hypot(norms, 1.0).max() <= ROW_NORM
        assert len(set(people.ids)) == len(people.X) == len(people.y)

    def test_nothing_is_fitted_on_those_in_the_model(self) -> None:
        # Undone up to each row's length, which is that row's own, the scale must be
        # that of the others alone.
        from sklearn.datasets import load_breast_cancer

        X, _ = load_breast_cancer(return_X_y=True)
        people = patients()
        inside = [int(one.removeprefix("patient-")) for one in people.ids]
        others = np.delete(X, inside, axis=0)
        scaled = (X[inside] - others.mean(axis=0)) / others.std(axis=0)
        scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
        assert np.allclose(scaled, people.X, rtol=0.0, atol=1e-12)


class TestWitness:
    def test_retraining_is_what_the_library_learns(self) -> None:
        witness = Witness.of(patients(), ALPHA, CONTRACT).after(5, 7)
        fresh = Witness.of(patients(), ALPHA, CONTRACT)
        retrained = witness.retrained()
        assert fresh.distance(fresh.retrained()) < 1e-9
        assert 0.0 < witness.distance(retrained) <= witness.custody.radius.value
        assert fresh.distance(retrained) > witness.distance(retrained)

    def test_record_of_another_model_is_refused(self, run: Run) -> None:
        with Registry.open(run.folder / "registry") as registry:
            record = registry.models.record(MODEL)
        with pytest.raises(RuntimeError, match="computed something else"):
            Witness.of(patients(), ALPHA, CONTRACT).after(5).require_same(record)

    def test_order_within_a_batch_does_not_matter(self) -> None:
        witness = Witness.of(patients(), ALPHA, CONTRACT)
        one, other = (witness.after(*places) for places in ((5, 9, 7), (9, 7, 5)))
        assert one.custody.radius == other.custody.radius


class TestTree:
    @pytest.mark.parametrize("size", [1, 2, 3, 6, 8, 13])
    def test_proof_is_that_of_the_ledger(self, size: int) -> None:
        leaves = [leaf_hash(bytes([i])) for i in range(size)]
        frontier = Frontier()
        for each in leaves:
            frontier = frontier.append(each)
        for index in range(size):
            nodes = list(values.sketch(leaves, index).walk())
            given = {node.digest for node in nodes if node.role == "proof"}
            proof = inclusion_proof(build_nodes(leaves), index, size=size)
            assert given == {sibling.hex() for sibling in proof}
            assert nodes[0].digest == frontier.tree().root.hex()
            (entry,) = [node for node in nodes if node.role == "entry"]
            assert entry.digest == leaves[index].hex()

    def test_no_two_boxes_stand_in_one_place(self) -> None:
        nodes = list(
            values.sketch([leaf_hash(bytes([i])) for i in range(77)], 70).walk()
        )
        assert len({(node.x, node.depth) for node in nodes}) == len(nodes)
        closed = [node for node in nodes if not node.children]
        assert [node.x for node in closed] == list(range(len(closed)))
        assert sum(node.stop - node.start for node in closed) == 77

    def test_it_is_the_receipts(self, run: Run) -> None:
        receipt = Receipt.from_json((run.folder / RECEIPT).read_bytes())
        nodes = list(run.story.tree.walk())
        assert run.story.tree.digest == receipt.head.root
        assert {n.digest for n in nodes if n.role == "proof"} == set(receipt.proof)


class TestPapers:
    def test_genuine_ones_stand(self, run: Run) -> None:
        pem = (run.folder / "public.pem").read_bytes()
        assert check_receipt((run.folder / RECEIPT).read_bytes(), pem).stands
        assert check_export((run.folder / EXPORT).read_bytes(), pem).stands

    def test_forged_ones_are_refused(self, run: Run) -> None:
        pem = (run.folder / "public.pem").read_bytes()
        receipt = check_receipt((run.folder / FORGED_RECEIPT).read_bytes(), pem)
        assert "does not bear the signature" in receipt.says
        short = check_export((run.folder / SHORTENED_EXPORT).read_bytes(), pem)
        assert "1 before it were removed" in short.says
        other = check_export((run.folder / ALTERED_EXPORT).read_bytes(), pem)
        assert "has another root" in other.says
        said = [forgery.says for forgery in run.story.forgeries]
        assert said == [receipt.says, short.says, other.says]

    @pytest.mark.parametrize(
        "names", [(FORGED_RECEIPT, RECEIPT), (ALTERED_EXPORT, EXPORT)]
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
            assert standing(registry, [request.request]) == 1
            monkeypatch.setattr(registry.keys, "public_pem", lambda: other)
            assert standing(registry, [request.request]) == 0


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
        assert set(CAPTIONS) == set(PLOTS)
        assert reader.tags["svg"] == reader.tags["figcaption"] == len(PLOTS)
        assert {f"{name}-caption" for name in PLOTS} <= set(reader.ids)
        assert NO_PLOTS not in reader.text

    def test_says_what_was_measured(self, run: Run) -> None:
        text, story = read(run.html).text, run.story
        times, last = story.typical, story.batch
        sentences = [
            values.nearness(story),
            values.accuracies(story),
            story.opened.says,
        ]
        sentences += [words[1:] for words in values.speeds(story)]
        sentences += [forgery.says for forgery in story.forgeries]
        sentences += [*story.opened.not_covered, *story.certificate.assumptions]
        figures = [f"{step.distance:.2g}" for step in sampled(story.answers)]
        figures += [f"{step.radius:.2g}" for step in sampled(story.answers)]
        figures += [values.percent(step.accuracy) for step in sampled(story.answers)]
        figures += [
            values.milliseconds(stage.stop - stage.start) for stage in story.life
        ]
        figures += [
            values.ratio(times.alone, times.retraining),
            values.percent(last.accuracy),
        ]
        figures += [str(one.with_rows) for one in story.outlook.foreseen]
        for part in [*sentences, *figures]:
            assert part in text, part

    def test_plots_show_what_was_measured(self, run: Run) -> None:
        reader = read(drawings(run.story)["life"])
        for stage in run.story.life:
            assert stage.name in reader.text
            assert values.milliseconds(stage.stop - stage.start) in reader.text
        tree = read(drawings(run.story)["tree"]).text
        for node in run.story.tree.walk():
            assert node.digest[:4] in tree
        times = run.story.typical
        bars = read(drawings(run.story)["times"]).text
        for seconds in (times.alone, times.in_batch, times.removal, times.retraining):
            assert values.milliseconds(seconds) in bars

    def test_names_nobody_and_gives_no_secret_away(self, run: Run) -> None:
        shown = run.html + listed(run.story) + "".join(text for _, text in run.said)
        assert not [one for one in patients().ids if one in shown]
        assert "patient-" not in shown
        with Registry.open(run.folder / "registry") as registry:
            secrets = [registry.models.record(MODEL).salt.hex()]
        for path in (run.folder / "registry/keys").iterdir():
            content = path.read_bytes()
            secrets += [content.hex(), *re.findall(r"[\w+/=]{32,}", path.read_text())]
        assert len(secrets) > 4
        assert not [one for one in secrets if one and one in shown]

    def test_noise_free_parameters_stay_out(self, run: Run) -> None:
        shown = run.html + listed(run.story)
        witness = Witness.of(patients(), ALPHA, CONTRACT)
        asking = patients().asking(SCRIPT.seed, N_GONE)
        for held in (witness, witness.after(*asking)):
            digits = [repr(abs(float(one)))[:12] for one in held.custody.draft.theta]
            assert not [one for one in digits if one in shown]

    def test_follows_light_dark_and_print(self, run: Run) -> None:
        assert "prefers-color-scheme: dark" in run.html
        assert "@media print" in run.html
        assert 'name="viewport"' in run.html
        assert not [colour for colour in COLOURS if colour in run.html]
        drawn = "".join(drawings(run.story).values())
        assert not re.findall(r"#[0-9a-f]{6}\b", drawn)

    def test_equal_stories_are_drawn_equally(self, run: Run) -> None:
        assert drawings(run.story) == drawings(run.story)

    def test_without_matplotlib_tables_are_left(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        assert drawings(run.story) == {}
        bare = read(page(run.story, {}))
        assert NO_PLOTS in bare.text
        assert bare.tags["svg"] == bare.tags["figure"] == 0
        assert bare.tags["table"] == read(run.html).tags["table"] > 0

    def test_escapes_what_it_is_given(self, run: Run) -> None:
        machine = replace(run.story.machine, processor="<b>fast</b> & cheap")
        html = page(replace(run.story, machine=machine), {})
        assert "&lt;b&gt;fast&lt;/b&gt; &amp; cheap" in html


class TestCommand:
    @pytest.fixture(autouse=True)
    def played(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the command tell the story of this module instead of a new one."""
        monkeypatch.setattr(demo_run, "told", lambda folder, script, voice: run.story)

    def test_writes_the_report_and_says_where(
        self, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = tmp_path / "new"
        assert Demo(out=folder).perform() == DONE
        assert (folder / "report.html").read_text() == run.html
        out = capsys.readouterr().out
        assert str(folder / "report.html") in out
        assert f"expunge verify {folder / FORGED_RECEIPT} --key" in out

    def test_json_is_all_that_is_printed(
        self, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert Demo(out=tmp_path, as_json=True).perform() == DONE
        raw = json.loads(capsys.readouterr().out)
        assert raw == {"report": str(tmp_path / "report.html"), **run.story.to_json()}

    def test_broken_promise_has_an_exit_code(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = replace(run.story, n_receipts=0)
        monkeypatch.setattr(demo_run, "told", lambda folder, script, voice: broken)
        assert Demo(out=tmp_path).perform() == DOES_NOT_STAND

    def test_folder_in_use_is_left_alone(self, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        kept.write_text("mine")
        for taken in (tmp_path, kept):
            with pytest.raises(Failed, match="empty or new") as failure:
                Demo(out=taken).perform()
            assert failure.value.code == WRONG_INPUT
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]

    def test_without_a_folder_it_makes_a_temporary_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert Demo().perform() == DONE
        (made,) = tmp_path.iterdir()
        assert made.name.startswith("expunge-demo-")
        assert made.stat().st_mode & 0o077 == 0

    @pytest.mark.parametrize("wanted", [True, False])
    def test_opens_a_browser_if_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
    ) -> None:
        seen: list[str] = []
        monkeypatch.setattr("webbrowser.open", seen.append)
        Demo(out=tmp_path, show=wanted).perform()
        assert seen == [(tmp_path / "report.html").as_uri()] * wanted


def test_lines_are_wrapped_beside_their_headings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    demo.line("Heading", "word " * 30)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("Heading     word")
    assert rest
    assert all(line.startswith(" " * demo.MARGIN + "word") for line in rest)
    assert values.first_sentence("It stands. And more.") == values.first_sentence(
        "It stands."
    )


def test_page_documents_every_option() -> None:
    app = typer.Typer()
    app.command("demo")(Demo)
    done = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"})
    page_ = (ROOT / "docs/demo.md").read_text()
    assert done.exit_code == 0
    for option in ("--out", "--seed", "--open", "--json", "--debug"):
        assert f"`{option}`" in page_
        assert option in done.stdout


def test_command_is_imported_without_what_it_runs() -> None:
    heavy = ["sklearn", "matplotlib", "rich.progress", "sqlalchemy", "webbrowser"]
    code = f"""import sys, expunge.cli.demo
print([m for m in {heavy} if m in sys.modules])"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
