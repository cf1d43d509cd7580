# SPDX-License-Identifier: Apache-2.0
"""The experiments' harness: figures, pieces, curves, comparisons, tables, pages."""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.comparison import measure as comparison
from benchmarks.comparison.measure import (
    EPSILONS,
    ComparisonRun,
    checkpoints_up_to,
    removals_within_budget,
)
from benchmarks.comparison.protocol import Problem, Promise, add_noise
from benchmarks.comparison.schedule import Restarting, Schedule, schedule_of
from benchmarks.data import DataNotFound, Dataset
from benchmarks.experiments import __main__ as command
from benchmarks.experiments import curves, html, openml, page, run, settings, tables
from benchmarks.experiments.figures import (
    Figure,
    Machine,
    Measured,
    Place,
    Spread,
    from_json,
    spreads,
    to_csv,
    to_json,
)
from benchmarks.experiments.pieces import Piece, measure, path_of, read_finished
from benchmarks.experiments.plan import Bench, pieces
from benchmarks.experiments.results import Line, Results, format_spread
from benchmarks.experiments.scale import FULL, QUICK
from benchmarks.experiments.settings import SETTINGS, Source, choose_settings
from benchmarks.report import Section, Table, Target
from expunge.core.arrays import Index, Vector
from expunge.exceptions import NotConverged, Unsupported
from tests.cases import logistic_data, ridge_logistic


class FakeSession:
    """A session that forgets by counting, and needs a noise that it is told."""

    def __init__(self, problem: Problem, sigma: float, patience: int) -> None:
        self.problem, self.sigma, self.patience = problem, sigma, patience
        self.requests: list[int] = []

    def forget(self, removed: Index) -> None:
        self.requests.append(len(removed))
        if sum(self.requests) > self.patience:
            raise NotConverged("enough")

    def theta(self) -> Vector:
        moved = np.ones(self.problem.train.X.shape[1])
        return moved * (1.0 + sum(self.requests))

    def state_bytes(self) -> int:
        return 8

    def noise(self, promise: Promise) -> float:
        return self.sigma / promise.epsilon

    def release(self, promise: Promise, rng: np.random.Generator) -> Vector:
        return add_noise(self.theta(), self.noise(promise), rng)

    @property
    def retrainings(self) -> int:
        return 0


class FakeContender:
    """A contender whose sessions are kept for a look."""

    def __init__(
        self, name: str, sigma: float = 0.0, patience: int = 10**6, *, able: bool = True
    ) -> None:
        self.name, self.sigma, self.patience, self.able = name, sigma, patience, able
        self.sessions: list[FakeSession] = []

    def start(self, problem: Problem, seed: int) -> FakeSession:
        del seed
        if not self.able:
            raise Unsupported("not this problem")
        self.sessions.append(FakeSession(problem, self.sigma, self.patience))
        return self.sessions[-1]


@pytest.fixture
def problem() -> Problem:
    """Return 60 rows to train on and 40 to test."""
    X, y = logistic_data(np.random.default_rng(0), 100, 4)
    objective = ridge_logistic(1e-2)
    parts = (slice(0, 60), slice(60, 100))
    train, test = (objective.rows(X[part], y[part]) for part in parts)
    return Problem("generated", objective, train, test)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every request take as many seconds as requests were timed before."""
    seconds = iter(np.arange(1.0, 1e4))

    def time_call(action: partial[None]) -> tuple[None, float]:
        action()
        return None, float(next(seconds))

    monkeypatch.setattr(curves, "time_call", time_call)
    monkeypatch.setattr(comparison, "time_call", time_call)


PLACE = Place("curves", "digits", 1e-3, "random", "IJ", "accuracy", 5)
MACHINE = Machine("a processor", 2, "Linux", "3.11", {"numpy": "2"})


def piece(*values: float, place: Place = PLACE) -> list[Measured]:
    """Return a piece for each value, of one seed each."""
    return [
        Measured(f"p{seed}", "r", MACHINE, (Figure(place, value, seed, 7),))
        for seed, value in enumerate(values)
    ]


class TestFigures:
    def test_piece_survives_json(self) -> None:
        for original in piece(0.5, math.inf):
            text = json.dumps(to_json(original), allow_nan=False)
            assert from_json(json.loads(text)) == original

    def test_other_schema_is_refused(self) -> None:
        raw = to_json(piece(0.5)[0]) | {"schema": 0}
        with pytest.raises(ValueError, match="schema 0 is not 1"):
            from_json(raw)

    def test_every_line_of_the_csv_says_where_it_comes_from(self) -> None:
        (line, _) = csv.DictReader(io.StringIO(to_csv(piece(0.25, 0.75))))
        assert line["value"] == "0.25"
        assert (line["seed"], line["repetitions"]) == ("0", "7")
        assert line["processor"] == "a processor"
        assert line["versions"] == "numpy=2"

    def test_spread_is_mean_and_standard_error(self) -> None:
        (spread,) = spreads(piece(1.0, 2.0, 6.0)).values()
        assert spread.mean == pytest.approx(3.0)
        assert spread.error == pytest.approx(math.sqrt(7.0 / 3.0))
        assert spread.seeds == 3

    def test_single_seed_has_no_error_and_infinity_no_spread(self) -> None:
        assert math.isnan(Spread.of(piece(1.0)[0].figures).error)
        (spread,) = spreads(piece(1.0, math.inf)).values()
        assert spread.mean == math.inf
        assert math.isnan(spread.error)

    def test_this_machine_names_its_libraries(self) -> None:
        assert {"expunge", "numpy", "scipy"} <= set(Machine.this().versions)


class TestPieces:
    def test_finished_piece_is_not_made_again(self, tmp_path: Path) -> None:
        made: list[int] = []

        def make() -> list[Figure]:
            made.append(1)
            return [Figure(PLACE, 0.5, 0)]

        one = Piece("a/b", "recipe", make)
        first = list(measure([one], tmp_path))
        assert list(measure([one], tmp_path)) == first
        assert len(made) == 1
        list(measure([one], tmp_path, resume=False))
        assert len(made) == 2
        list(measure([replace(one, recipe="another")], tmp_path))
        assert len(made) == 3

    def test_half_a_file_counts_for_nothing(self, tmp_path: Path) -> None:
        one = Piece("a", "recipe", lambda: [Figure(PLACE, 0.5, 0)])
        list(measure([one], tmp_path))
        path = path_of(one, tmp_path)
        path.write_text(path.read_text()[:-20])
        assert read_finished(one, tmp_path) is None

    def test_interrupted_piece_leaves_no_file(self, tmp_path: Path) -> None:
        def interrupted() -> list[Figure]:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            list(measure([Piece("a", "recipe", interrupted)], tmp_path))
        assert not list(tmp_path.rglob("*.json"))


class TestCurves:
    def test_points_reach_from_the_first_to_the_last_removal(self) -> None:
        assert curves.points(5000, 26)[:2] == (1, 201)
        assert len(curves.points(5000, 26)) == 26
        assert curves.points(3, 26) == (1, 2, 3)

    @pytest.mark.usefixtures("ticking")
    def test_times_between_points_are_interpolated(self, problem: Problem) -> None:
        order = np.arange(9)
        asked = curves.Run(problem, order, "random", 0, (1, 5, 9), sigma=0.0)
        retraining, newton = FakeContender("RT"), FakeContender("Newton")
        curve = curves.trace(retraining, asked)
        assert curve is not None
        assert retraining.sessions[0].requests == [1, 4, 4]
        # 1 s for the first, then four at (1 + 2)/2 s and four at (2 + 3)/2 s.
        assert [reading.cumulative for reading in curve.readings] == [1.0, 7.0, 17.0]
        assert all(reading.interpolated for reading in curve.readings)
        curves.trace(newton, asked)
        assert newton.sessions[0].requests == [1, 3, 1, 3, 1]

    @pytest.mark.usefixtures("ticking")
    def test_jackknife_is_timed_at_every_request(self, problem: Problem) -> None:
        order = np.arange(5)
        asked = curves.Run(problem, order, "random", 0, (1, 5), sigma=0.0)
        curve = curves.trace(FakeContender("IJ"), asked)
        assert curve is not None
        assert [len(reading.seconds) for reading in curve.readings] == [1, 4]
        assert curve.readings[-1].cumulative == 15.0
        assert not curve.readings[-1].interpolated

    def test_figures_are_held_against_retraining(self, problem: Problem) -> None:
        order = np.arange(5)
        asked = curves.Run(problem, order, "random", 3, (1, 5), sigma=0.0)
        given_up = FakeContender("IJ", patience=1)
        contenders = [FakeContender("RT"), given_up, FakeContender("TA", able=False)]
        found = {item.place: item for item in curves.measure_curves(contenders, asked)}
        at = Place("curves", "generated", 1e-2, "random", "RT", "distance", 5)
        assert found[at].value == 0.0
        assert found[at].seed == 3
        # The first fit is (1, 1, 1, 1), and the last (6, 6, 6, 6).
        assert found[replace(at, contender=curves.NOTHING)].value == 10.0
        assert replace(at, contender="IJ", removals=1) in found
        assert replace(at, contender="IJ") not in found
        assert not any(place.contender == "TA" for place in found)
        accuracy = replace(at, quantity="accuracy")
        share = curves.accuracy(problem.test, np.ones(4))
        assert found[accuracy].value == share
        noised_at = replace(at, quantity="noised accuracy")
        assert found[noised_at].value == pytest.approx(share)


def comparison_run(
    problem: Problem, checkpoints: tuple[int, ...] = (1, 12)
) -> ComparisonRun:
    return ComparisonRun(problem, np.arange(30), "random", 0, checkpoints, draws=4)


class TestComparison:
    def test_requests_follow_the_schedule(self, problem: Problem) -> None:
        few, alone = FakeContender("TA"), FakeContender("printed")
        schedules = [Schedule(few, singles=3), Schedule(alone, singles=None, most=5)]
        comparison.compare(schedules, comparison_run(problem, (1, 5, 12)))
        assert few.sessions[0].requests == [1, 1, 1, 1, 1, 4, 1, 1, 1]
        assert alone.sessions[0].requests == [1] * 5

    def test_everything_is_measured(self, problem: Problem) -> None:
        found = comparison.compare(
            [Schedule(FakeContender("RT", sigma=1e-9))], comparison_run(problem)
        )
        last = {x.place.quantity: x for x in found if x.place.removals == 12}
        assert set(last) == {
            "seconds",
            "distance",
            "accuracy",
            "retrainings",
            "state bytes",
            "noise",
            comparison.PROMISED,
            "p50 seconds",
            "p99 seconds",
            "epsilon at fixed accuracy",
        }
        assert last["p50 seconds"].repetitions == 2
        assert last[comparison.PROMISED].repetitions == 4
        assert last[comparison.PROMISED].value == pytest.approx(last["accuracy"].value)
        assert last["epsilon at fixed accuracy"].value == EPSILONS[0]

    def test_method_without_a_proof_publishes_nothing(self, problem: Problem) -> None:
        silent = Schedule(FakeContender("X", sigma=math.inf))
        found = comparison.compare(
            [Schedule(FakeContender("RT")), silent], comparison_run(problem)
        )
        theirs = {x.place.quantity: x.value for x in found if x.place.contender == "X"}
        assert theirs["noise"] == math.inf
        assert comparison.PROMISED not in theirs
        assert theirs["epsilon at fixed accuracy"] == math.inf

    def test_least_epsilon_is_where_accuracy_is_kept(self, problem: Problem) -> None:
        session = FakeSession(problem, 30.0, 100)
        run_ = replace(comparison_run(problem), draws=50)
        goal = curves.accuracy(problem.test, session.theta()) - comparison.POINT
        found = comparison.least_epsilon(session, run_, goal)
        below = EPSILONS[EPSILONS.index(found) - 1]
        scores = [
            comparison.noised_accuracy(session.theta(), 30.0 / epsilon, run_)
            for epsilon in (below, found)
        ]
        assert scores[0] < goal <= scores[1]

    def test_a_contender_that_gives_up_keeps_its_figures(
        self, problem: Problem
    ) -> None:
        schedules = [
            Schedule(FakeContender("RT")),
            Schedule(FakeContender("X", patience=5)),
        ]
        found = comparison.compare(
            [*schedules, Schedule(FakeContender("Y", able=False))],
            comparison_run(problem),
        )
        assert {x.place.removals for x in found if x.place.contender == "X"} == {1}
        assert not [x for x in found if x.place.contender == "Y"]

    def test_budget_holds_until_noise_or_retraining(self) -> None:
        noise = {1: 0.01, 10: 0.09, 100: 0.2, 1000: 0.01}
        assert removals_within_budget(noise, dict.fromkeys(noise, 0.0)) == 10
        assert (
            removals_within_budget(noise, {1: 0.0, 10: 1.0, 100: 1.0, 1000: 1.0}) == 1
        )
        assert removals_within_budget({1: 0.2}, {1: 0.0}) == 0

    def test_last_request_is_a_checkpoint(self) -> None:
        assert checkpoints_up_to((1, 10, 50), 30) == (1, 10, 30)
        assert checkpoints_up_to((1, 10), 10) == (1, 10)

    def test_restarting_passes_single_people_on(self, problem: Problem) -> None:
        teller = FakeContender("D2D")
        assert isinstance(schedule_of(teller).contender, Restarting)
        session = Restarting(teller).start(problem, 0)
        session.forget(np.array([3]))
        session.forget(np.array([4, 1]))
        session.forget(np.array([7]))
        first, second = teller.sessions
        assert first.requests == second.requests == [1]
        assert len(second.problem.train) == 57
        assert session.retrainings == 0
        assert session.state_bytes() == 8
        assert session.noise(Promise()) == 0.0
        np.testing.assert_array_equal(
            session.release(Promise(), np.random.default_rng(0)), second.theta()
        )


class TestSettings:
    def test_digits_are_parted_and_of_unit_norm(self) -> None:
        train, test = settings.digits(Source(None, Path()))
        assert (len(train), len(test)) == (285, 72)
        np.testing.assert_allclose(np.linalg.norm(train.X, axis=1), 1.0)

    def test_words_stand_for_settings(self) -> None:
        assert [item.name for item in choose_settings("svhn", QUICK)] == [
            "svhn-histogram"
        ]
        assert len(choose_settings("svhn", FULL)) == 4
        assert len(choose_settings("all", FULL)) == len(SETTINGS)

    def test_few_rows_are_a_share_of_all(self) -> None:
        dataset = Dataset(np.arange(40.0)[:, None], np.ones(40))
        train, test = settings.thin((dataset, dataset), 12)
        assert (len(train), len(test)) == (12, 3)
        assert settings.thin((dataset, dataset), None)[0] is dataset

    def test_mnist_is_fetched_where_there_is_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frame = pd.DataFrame({"pixel1": [3.0, 0.0, 5.0], "pixel2": [4.0, 1.0, 0.0]})
        frame["class"] = ["3", "1", "8"]
        answer = type("Bunch", (), {"frame": frame})
        monkeypatch.delenv("EXPUNGE_DATA", raising=False)
        monkeypatch.setattr(openml, "fetch_openml", lambda name, **_: answer)
        monkeypatch.setattr(openml, "MNIST_TRAIN", 2)
        train, test = settings.mnist(Source(tmp_path, tmp_path))
        np.testing.assert_allclose(train.X, [[0.6, 0.8]])
        assert test.y.tolist() == [1.0]

    def test_both_ways_are_named_when_openml_is_out_of_reach(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unreachable(name: str, **_: object) -> object:
            raise OSError("no route")

        monkeypatch.delenv("EXPUNGE_DATA", raising=False)
        monkeypatch.setattr(openml, "fetch_openml", unreachable)
        for load in (settings.mnist, settings.adult):
            with pytest.raises(DataNotFound, match=r"--data-dir.*no route"):
                load(Source(tmp_path, tmp_path))


class TestPlan:
    def test_full_run_has_the_papers_grid(self) -> None:
        bench = Bench(SETTINGS["mnist"], FULL, Source(None, Path()))
        names = [item.name for item in pieces(bench, 5)]
        assert len(names) == len(set(names)) == 4 * 2 * 3 + 5 * 3
        assert "full/mnist/curves-1e-06-biased-7" in names
        assert FULL.points >= 25


def small_results() -> Results:
    """Return results of curves and a comparison, with figures easy to check."""

    def found() -> Iterator[Measured]:
        head = ("curves", "mnist", 1e-3, "random")
        for name, seconds in (("RT", 6.0), ("TA", 3.0), ("IJ", 1e-3)):
            for quantity in ("cumulative seconds", "distance"):
                yield from piece(seconds, place=Place(*head, name, quantity, 1))
        for name, distance in (("printed", 5.0), (curves.NOTHING, 2.0)):
            yield from piece(distance, place=Place(*head, name, "distance", 1))
        for quantity, value in (("noise", 0.05), ("retrainings", 0.0)):
            at = Place("comparison", "mnist", 1e-3, "random", "IJ", quantity, 10)
            yield from piece(value, place=at)
        at = Place("comparison", "mnist", 1e-3, "random", "RT", "distance", 50)
        yield from piece(0.0, place=at)
        for quantity in ("noise", "retrainings"):
            yield from piece(0.0, place=replace(at, quantity=quantity))
        for name in ("printed", "ours"):
            at = Place("errata", "", 0.0, "", name, "E2: distance", 0)
            yield from piece(0.5, place=at)

    return Results.of(found())


class TestTables:
    def test_ratios_are_held_against_the_paper(self) -> None:
        section = tables.runtimes(small_results(), "full")
        assert [target.value for target in section.targets] == pytest.approx(
            [6000.0, 3000.0]
        )
        assert all(target.reached for target in section.targets)
        assert not tables.runtimes(small_results(), "quick").targets

    def test_printed_stands_beside_corrected(self) -> None:
        (row,) = tables.side_by_side(small_results()).tables[0].rows
        assert row[3:] == ("2", "5", "0.001", "3", "5,000")

    def test_comparison_says_how_long_a_budget_holds(self) -> None:
        (section,) = tables.comparisons(small_results())
        jackknife, retraining = section.tables[0].rows
        assert (jackknife[0], jackknife[-1]) == ("IJ (until 10)", "10")
        assert (retraining[0], retraining[-1]) == ("RT", "50")

    def test_slips_without_a_figure_are_listed_too(self) -> None:
        rows = tables.errata(small_results()).tables[0].rows
        assert [row[0] for row in rows] == ["E2", "E12", "E13, E20", "E17"]

    @pytest.mark.parametrize(
        ("spread", "digits", "text"),
        [
            (Spread(0.95712, 0.00123, 3), 4, "0.9571 +- 0.0012"),
            (Spread(0.25, math.nan, 1), None, "0.25"),
            (Spread(math.inf, math.nan, 3), None, "none"),
            (None, None, "-"),
        ],
    )
    def test_spreads_are_written_with_their_error(
        self, spread: Spread | None, digits: int | None, text: str
    ) -> None:
        assert format_spread(spread, digits) == text


class TestReport:
    def test_page_is_whole_and_fetches_nothing(self) -> None:
        section = Section(
            "A < B", [Table(("a",), [("1 & 2",)])], [Target("t", 1.0, low=2.0)], ["n"]
        )
        drawing = '<?xml version="1.0"?>\n<svg xmlns="x"></svg>'
        text = html.page("Title", [section], {"caption": drawing}, [MACHINE])
        for part in ("A &lt; B", "1 &amp; 2", 'class="missed"', "a processor", "<svg"):
            assert part in text
        for part in ("<?xml", "src=", "<script", "<link", "@import", "url("):
            assert part not in text

    def test_findings_name_agreement_and_failure(self) -> None:
        text = "\n".join(page.findings(small_results()))
        assert "6,000 times faster than RT, the paper says 2,611: agrees" in text
        assert "worse than no removal (2)" in text

    def test_table_in_markdown(self) -> None:
        text = page.table(Table(("a", "b"), [("1", "2")]))
        assert text == "| a | b |\n| --- | ---: |\n| 1 | 2 |"


def test_results_keep_the_order_of_the_run() -> None:
    results = small_results()
    assert results.models("curves") == [("mnist", 1e-3, "random")]
    assert (
        results.last(Line("curves", "mnist", 1e-3, "random", "TA", "nothing")) is None
    )
    head = ("curves", "mnist", 1e-3, "random")
    assert results.end(head, "TA", "distance") is not None
    assert results.end(head, "TA", "accuracy") is None
    assert results.seconds(head, "TA") == 3.0
    assert math.isnan(results.seconds(head, "Guo"))


def test_nothing_to_run_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EXPUNGE_DATA", raising=False)
    asked = run.Request("warfarin", "quick", tmp_path, data_dir=tmp_path)
    with pytest.raises(DataNotFound, match=r"warfarin/warfarin\.csv"):
        run.run(asked, lambda name, done, total: None)


class TestCommand:
    def test_options_reach_the_experiments(self, tmp_path: Path) -> None:
        place = str(tmp_path)
        options = ["--no-resume", "--seed", "7", "--data-dir", place, "--out", place]
        asked = command.parse(["svhn", *options])
        assert asked == run.Request(
            "svhn", "quick", tmp_path, tmp_path, 7, resume=False
        )
        full = command.parse(["all", "--full"])
        assert full == run.Request("all", "full", command.RESULTS)
        with pytest.raises(SystemExit):
            command.parse(["cifar"])

    def test_what_was_found_and_what_could_not_run_are_printed(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def outcome(request: run.Request, watch: object) -> run.Outcome:
            table = Table(("setting", "asked"), [(request.word, request.scale)])
            section = Section("Found", [table], [Target("RT / IJ", 5.0, low=10.0)])
            return run.Outcome([section], ["svhn-dp: no torch"], [Path("report.html")])

        monkeypatch.setattr(command, "run", outcome)
        assert command.main(["mnist", "--full"]) == 1
        shown = capsys.readouterr()
        for part in ("mnist     full", "wrote report.html", "0 of 1 targets reached"):
            assert part in shown.out
        assert "not run: svhn-dp: no torch" in shown.err
