# SPDX-License-Identifier: Apache-2.0
"""Cards in a notebook: the promise, nothing private, and no markup of strangers."""

import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import expunge
from expunge import (
    Budget,
    Certificate,
    LinearRegression,
    LogisticRegression,
    SoftmaxRegression,
    TunedClassifier,
    TunedRegressor,
    residual,
)
from expunge.core.values import Private
from expunge.display.cards import DARK, LIGHT, Card
from expunge.linear_model.base import private_model, set_snapshot, snapshot_of
from expunge.private_model.snapshot import note_use
from expunge.promise.certificate import NO_BUDGET

BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=0.3)
HOSTILE = "<script>alert('x')</script>\"&"
N_PEOPLE, N_ROWS = 37, 74
ESTIMATORS = (
    *(LogisticRegression, SoftmaxRegression, LinearRegression),
    *(TunedClassifier, TunedRegressor),
)
VOID = frozenset({"br", "input", "meta", "hr"})


class Page(HTMLParser):
    """The tags and the text of some HTML; unbalanced tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open and "script" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def people() -> tuple[Any, Any, list[str]]:
    rows = np.random.default_rng(3).normal(size=(N_ROWS, 4))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    who = [f"subject-{i // 2:03}" for i in range(N_ROWS)]
    return rows, rows[:, 0] + 0.3 * rows[:, 1] > 0.0, who


@pytest.fixture(scope="module")
def model() -> Any:
    X, y, who = people()
    fitted = LogisticRegression(alpha=1e-2, budget=BUDGET).fit(X, y, who)
    return fitted.forget(["subject-004"]).forget(["subject-011", "subject-030"])


def private_figures(model: Any) -> Iterator[str]:
    """Yield what no card may show, as text."""
    private, record = private_model(model), model.record_
    numbers = [record.radius, private.answer.radius.value]
    state, draft = private.answer.state, private.answer.draft
    numbers += [*residual(state, draft).tolist(), *draft.theta.tolist()]
    numbers += list(record.timings.values())
    # Released numbers may be shown, and round to the same few digits by chance.
    released = snapshot_of(model).public.release.theta.tolist()
    public = {f"{one:{form}}" for one in released for form in (".2g", ".3g", ".2f")}
    for number in filter(None, numbers):
        short = f"{number:.3g}"
        digits = re.sub(r"e.*|\D", "", short).lstrip("0")
        # Nor does a round number, such as an alpha of 0.01, tell of a private one.
        if len(digits) == 3 and short not in public:
            yield short
        yield f"{number:.6f}"
        yield repr(float(number))
    yield from ("subject-", record.salt.hex(), *record.decisions)
    yield from map(str, (N_ROWS, N_PEOPLE, record.n_samples, N_ROWS - record.n_removed))


def cards_of(model: Any) -> dict[str, str]:
    bundle = model._repr_mimebundle_()
    return {
        "certificate": model.certificate_._repr_html_(),
        "release": snapshot_of(model).public.release._repr_html_(),
        "estimator": bundle["text/html"],
        "record": model.record_._repr_html_(),
        "private model": private_model(model)._repr_html_(),
    }


def test_card_states_the_promise_in_one_sentence(model: Any) -> None:
    said = (
        "Up to noise that hides the difference, this release is what retraining "
        "without the 3 people who left gives: someone who thought 50:50 whether it was "
        "retrained is right at most 73.2 % of the time after seeing it (epsilon 1, "
        "delta 1e-05)."
    )
    assert model.certificate_.state_promise() == said
    for name in ("certificate", "release", "estimator"):
        page = Page(cards_of(model)[name])
        assert said in page.text
        for sentence in (
            *model.certificate_.not_covered,
            *model.certificate_.assumptions,
        ):
            assert " ".join(sentence.split()) in page.text
        assert [tag for tag, _ in page.tags].count("details") >= 2
    assert "open" not in dict(page.tags)["details"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"n_subjects_removed": 0},
            "what retraining from scratch gives",
        ),
        ({"n_subjects_removed": 1}, "without the 1 person who left gives"),
        (
            {"n_subjects_removed": 2, "n_subjects_added": 1},
            "without the 2 people who left and with the 1 person who came gives",
        ),
        ({"releases": 12}, "all 12 releases are what retraining"),
        ({"status": "no promise", "selection": "not covered"}, "a choice was made by"),
        ({"status": "no promise"}, "Nothing is promised: the noise came from a seed"),
    ],
)
def test_sentence_follows_the_certificate(
    changes: dict[str, Any], words: str, model: Any
) -> None:
    certificate: Certificate = model.certificate_.replace(**changes)
    assert words in certificate.state_promise()
    assert words in Page(certificate._repr_html_()).text
    void = certificate.status == "no promise"
    assert ("var(--orange)" in certificate._repr_html_().split("</style>")[1]) is void


def test_model_without_a_budget_says_that_nothing_is_promised() -> None:
    X, y, who = people()
    fitted = LogisticRegression().fit(X, y, who)
    text = Page(fitted._repr_html_()).text
    assert NO_BUDGET in text and "Up to noise" not in text


def test_cards_show_nothing_private(model: Any) -> None:
    shown = cards_of(model)
    for name, text in shown.items():
        visible = Page(text).text
        for figure in private_figures(model):
            # A count may occur inside a longer number, never as a number of its own.
            found = re.search(rf"(?<![\w.]){re.escape(figure)}(?![\w.])", visible)
            assert found is None, f"{name}: {figure}"
        assert "radius" not in visible


def test_the_search_for_private_figures_finds_them(model: Any) -> None:
    record = model.record_
    leak = f"{record.radius:.3g} {record.n_samples} subject-004"
    assert sum(figure in leak for figure in private_figures(model)) >= 3


def test_a_private_value_says_only_that_it_is_private(model: Any) -> None:
    for value in (model.record_, private_model(model), private_model(model).answer):
        page = Page(value._repr_html_())
        assert page.text == f"{type(value).__name__} private"


def private_types(kind: type[Private] = Private) -> set[type[Private]]:
    """Return every private type of the package."""
    for module in pkgutil.walk_packages(expunge.__path__, "expunge."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, waiting = set(), [kind]
    while waiting:
        below = waiting.pop().__subclasses__()
        found |= set(below)
        waiting += below
    return {each for each in found if each.__module__.startswith("expunge.")}


def test_every_private_type_has_the_private_card() -> None:
    kinds = private_types()
    assert len(kinds) > 50
    assert all(kind._repr_html_ is Private._repr_html_ for kind in kinds)


@pytest.mark.parametrize(
    "kind",
    [
        LogisticRegression,
        SoftmaxRegression,
        TunedClassifier,
        LinearRegression,
        TunedRegressor,
    ],
)
def test_every_estimator_shows_diagram_and_promise(kind: Any) -> None:
    X, y, who = people()
    unfitted = kind(budget=BUDGET)
    assert "expunge-card" not in unfitted._repr_html_()
    fitted = unfitted.fit(X, y.astype(int), who)
    for shown in (fitted._repr_html_(), fitted._repr_mimebundle_()["text/html"]):
        assert shown.startswith("<style>.sk-global")
        assert f"<b>{kind.__name__}</b>\n<p>Up to noise" in shown
    with config_context(display="text"):
        assert "text/html" not in fitted._repr_mimebundle_()
        assert not hasattr(fitted, "_repr_html_")


def test_preprocessing_is_in_the_diagram() -> None:
    X, y, who = people()
    table = pd.DataFrame(X, columns=[f"{HOSTILE}{i}" for i in range(4)])
    columns = [(HOSTILE, StandardScaler(), list(table))]
    fitted = LogisticRegression(
        preprocessing=ColumnTransformer(columns), alpha=1e-2, budget=BUDGET
    )
    fitted.fit(table, y, who).forget([who[8]])
    shown = fitted._repr_html_()
    assert "preprocessing: ColumnTransformer" in shown and "StandardScaler" in shown
    assert "without the 1 person who left gives" in shown
    assert "<script>alert" not in shown
    visible = Page(shown).text
    for figure in private_figures(fitted):
        assert not re.search(rf"(?<![\w.]){re.escape(figure)}(?![\w.])", visible)


def test_a_copy_is_shown_like_the_model(model: Any) -> None:
    copied = deepcopy(model)
    assert not hasattr(copied, "record_")
    ours, theirs = model._repr_html_(), copied._repr_html_()
    cut = ours.index("<style>\n.expunge-card")
    assert ours[cut:] == theirs[theirs.index("<style>\n.expunge-card") :]


def test_cards_are_the_same_each_time(model: Any) -> None:
    for value in (model.certificate_, model.record_, snapshot_of(model).public.release):
        assert value._repr_html_() == value._repr_html_()
    again = Certificate.from_json(model.certificate_.to_json())
    assert again._repr_html_() == model.certificate_._repr_html_()


def leaver(kind: str, X: Any) -> tuple[Any, int]:
    """Return the row and the label of somebody who will leave."""
    if kind == "outlier":
        return 40.0 * X[1], 0
    return X[1], 2 if kind == "only one of a class" else 1


def shown_without_noise(model: Any) -> dict[str, Any]:
    """Return all that an estimator shows, with zero for each released number."""
    snapshot = snapshot_of(model)
    release = snapshot.public.release
    blank = replace(release, theta=np.zeros_like(release.theta))
    set_snapshot(
        model, replace(snapshot, public=replace(snapshot.public, release=blank))
    )
    names = [n for n in dir(model) if not callable(getattr(model, n))]
    return {
        # Diagrams are numbered, and a commitment, of which one digit shows, is random.
        "card": re.sub(r"id-\d+|(?<=\.\.)\w(?=&#x27;, v)", "", model._repr_html_()),
        "text": repr(model),
        "names": names,
        "hasattr": {name for name in dir(type(model)) if hasattr(model, name)},
        "tags": str(model.__sklearn_tags__()),
        "parameters": str(model.get_params()),
        "vars": list(vars(model)),
        "copy": re.sub(rb"[0-9a-f]{64}", b"", pickle.dumps(model)),
    }


def used_budget() -> Budget:
    """Return a budget that a fit has used: certificates of the next fit say so."""
    budget = replace(BUDGET, allow_seeded=True)
    note_use(budget)
    return budget


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize(
    "kind", [LogisticRegression, SoftmaxRegression, TunedClassifier]
)
def test_nothing_shown_tells_who_left(kind: Any, declared: bool) -> None:
    X, y, who = people()
    worlds = {}
    for name in ("ordinary", "outlier", "only one of a class"):
        row, label = leaver(name, X)
        settings: dict[str, Any] = {"budget": used_budget()}
        settings |= {"random_state": 3, "penalize_intercept": True}
        if declared:
            settings["classes"] = [0, 1, 2]
        if kind is TunedClassifier:
            settings["alphas"] = [1e-3]  # folds are drawn, and so is a choice
        fitted = kind(**settings).fit(
            np.vstack([X, row]), [*y.astype(int), label], [*who, "leaver"]
        )
        worlds[name] = shown_without_noise(fitted.forget(["leaver"]))
    assert worlds["ordinary"] == worlds["outlier"] == worlds["only one of a class"]


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_nothing_shown_tells_whose_column_was_odd(kind: Any) -> None:
    """Preprocessing is learned again from some who left, and lifted from others."""
    X, y, who = people()
    table = pd.DataFrame(X, columns=list("abcd"))
    table["b"] = table["b"].where(np.arange(N_ROWS) % 5 > 0)
    table["e"] = np.where(y, "x", "y")
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    columns = [
        ("numbers", numbers, list("abcd")),
        ("words", OneHotEncoder(handle_unknown="ignore"), ["e"]),
    ]
    odd: dict[str, Any] = {
        "nothing": {},
        "size": {"a": 40.0},
        "word": {"e": "z"},
        "gap": {"d": np.nan},
    }
    worlds: dict[str, Any] = {}
    for name, change in odd.items():
        settings: dict[str, Any] = {"preprocessing": ColumnTransformer(columns)}
        settings |= {"budget": used_budget(), "random_state": 3}
        if kind in (TunedClassifier, TunedRegressor):
            settings["alphas"] = [1e-2]
        fitted = kind(**settings).fit(
            pd.concat([table, table.iloc[[1]].assign(**change)], ignore_index=True),
            np.append(y, y[1]).astype(int),
            [*who, "leaver"],
        )
        worlds[name] = shown_without_noise(fitted.forget(["leaver"]))
    fresh = kind(**settings).fit(table, y.astype(int), who)
    assert all(shown == worlds["nothing"] for shown in worlds.values())
    # Nor is there a difference to a fit without them, but for what is counted.
    copies = len(worlds["nothing"]["copy"]), len(shown_without_noise(fresh)["copy"])
    assert copies[0] == copies[1]


def test_only_what_is_public_is_listed(model: Any) -> None:
    fitted = {n for n in dir(model) if n.endswith("_") and not n.startswith("_")}
    assert fitted == {
        "certificate_", "classes_", "coef_", "intercept_", "n_features_in_"
    }  # fmt: skip
    assert "n_iter_" not in model._repr_html_()
    assert "record_" not in dir(model) and model.record_ is not None


def test_hostile_names_are_text() -> None:
    X, y, who = people()
    table = pd.DataFrame(X, columns=[f"{HOSTILE}{i}" for i in range(4)])
    labels = np.where(y, HOSTILE, "plain")
    fitted = LogisticRegression(budget=BUDGET, classes=[HOSTILE, "plain"])
    fitted.fit(table, labels, who)
    fitted.declare_tuned(HOSTILE)
    certificate = fitted.certificate_.replace(
        mechanism=HOSTILE,
        not_covered=(*fitted.certificate_.not_covered, HOSTILE),
        assumptions=(HOSTILE,),
    )
    everything = Card(
        HOSTILE, HOSTILE, facts=((HOSTILE,) * 2,), tables=(((HOSTILE,),) * 2,),
        folded=((HOSTILE, (HOSTILE,)),),
    )  # fmt: skip
    card_texts = certificate._repr_html_(), everything.to_html()
    for text in card_texts:
        page = Page(text)
        assert "script" not in dict(page.tags) and HOSTILE in page.text
    assert card_texts[1].count("&lt;script&gt;") == 8
    assert "<script>alert" not in fitted._repr_html_()


def test_cards_fetch_nothing_and_are_small(model: Any) -> None:
    for text in (model.certificate_._repr_html_(), model.record_._repr_html_()):
        assert not re.search(r"https?:|src=|href=|@import|url\(", text)
        assert len(text) < 6000


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG 2 defines it."""
    digits = colour * 2 if len(colour) == 3 else colour
    parts = [int(digits[i : i + 2], 16) / 255.0 for i in (0, 2, 4)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_is_readable_in_light_and_dark(palette: str) -> None:
    colours = dict(re.findall(r"--(\w+): #(\w+);", palette))
    paper = luminance(colours["card"])
    for name in ("ink", "muted", "blue", "orange", "green"):
        ink = luminance(colours[name])
        contrast = (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05)
        assert contrast >= 4.5, name  # WCAG 2, level AA


def _public_share(model: Any) -> str:
    text = " ".join(Page(model._repr_mimebundle_()["text/html"]).words)
    found = re.search(r"public rows (.*?alone)", " ".join(text.split()))
    assert found is not None
    return found[1]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_card_says_what_noise_does_to_public_rows(n_classes: int) -> None:
    """It is what releases of the same rows really do."""
    rng = np.random.default_rng(0)
    X, public = rng.normal(size=(200, 3)), rng.normal(size=(400, 3))
    y = np.digitize(X[:, 0] + rng.logistic(size=200), [-0.5, 0.7][: n_classes - 1])
    budget = Budget(sigma=0.05, allow_seeded=True)
    decisions, shares = [], []
    for seed in range(60):
        model = SoftmaxRegression(alpha=0.001, budget=budget, random_state=seed)
        decisions.append(model.fit(X, y).predict(public))
        told = _public_share(model.declare_public(public))
        shares.append(float(told.split()[1]))
        assert told.endswith(
            "on 400 of them differ from one release to the next by noise alone"
        )
    pairs = zip(decisions[::2], decisions[1::2], strict=True)
    measured = 100.0 * np.mean([np.mean(a != b) for a, b in pairs])
    assert np.mean(shares) == pytest.approx(measured, rel=0.2)


def test_public_rows_are_on_the_card_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    model = LinearRegression(alpha=0.1, budget=BUDGET, random_state=0)
    model.fit(X, X[:, 0])
    before = model.certificate_
    expunge.ship(model, tmp_path / "before.safetensors")
    assert "public rows" not in model._repr_mimebundle_()["text/html"]
    assert "a prediction on 60 of them differs by about" in _public_share(
        model.declare_public(X)
    )
    expunge.ship(model, tmp_path / "after.safetensors")
    shipped = [
        (tmp_path / f"{one}.safetensors").read_bytes() for one in ("before", "after")
    ]
    assert shipped[0] == shipped[1] and model.certificate_ == before
    with pytest.raises(ValueError, match="2 features"):
        model.declare_public(X[:, :1])
    assert "on 60 of them" in _public_share(model)  # as before
    with pytest.raises(NotFittedError):
        LinearRegression().declare_public(X)
