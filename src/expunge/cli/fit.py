# SPDX-License-Identifier: Apache-2.0
"""``expunge fit``: a table becomes a model that can forget, kept by the registry.

Kinds: which estimator a target and the options of ``fit`` ask for.
"""

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput, Unsupported
from .options import DONE, OnRegistry, require_file
from .output import counted, facts, model_json, note, promise, say, say_json

if TYPE_CHECKING:
    from ..registry import ModelStatus
    from .tables import Table


MOST_CLASSES = 50
ALPHA = 1e-3
CONTRACT = ("epsilon", "delta", "sigma", "releases", "row_norm")


class Kind(StrEnum):
    """What kind of model to fit."""

    auto = "auto"
    logistic = "logistic"
    linear = "linear"
    softmax = "softmax"


class Mechanism(StrEnum):
    """What answers removals."""

    newton = "newton"
    jackknife = "jackknife"
    rescaled = "rescaled"
    retrain = "retrain"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is fitted, and under which contract."""

    kind: Annotated[
        Kind,
        typer.Option(
            help="auto: two distinct values are logistic, up to 50 words or whole "
            "numbers softmax, all else linear."
        ),
    ] = Kind.auto
    alpha: Annotated[
        float | None, typer.Option(help="Factor of the penalty; 1e-3 unless said.")
    ] = None
    alphas: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Candidates like 1e-2,1e-3: choose by cross-validation, and choose "
            "again when people go.",
        ),
    ] = None
    l1_ratio: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="0 is L2, 1 is L1.")
    ] = 0.0
    mechanism: Annotated[Mechanism, typer.Option(help="What answers removals.")] = (
        Mechanism.newton
    )
    epsilon: Annotated[
        float | None, typer.Option(help="What is promised; 1 unless said.")
    ] = None
    delta: Annotated[
        float | None, typer.Option(help="What is promised; 1e-5 unless said.")
    ] = None
    sigma: Annotated[
        float | None, typer.Option(help="Noise on each parameter; 0.1 unless said.")
    ] = None
    releases: Annotated[
        int | None,
        typer.Option(
            help="Promise it for so many releases together, the first one included; "
            "otherwise for each on its own."
        ),
    ] = None
    row_norm: Annotated[
        float | None,
        typer.Option(help="A bound on the norm of rows, promised; else measured."),
    ] = None
    no_budget: Annotated[
        bool, typer.Option("--no-budget", help="No noise, and no promise.")
    ] = False

    def kind_for(self, y: Any) -> Kind:
        """Return the kind that was asked for, or the one that suits the target."""
        if self.kind is Kind.linear and y.dtype.kind not in "iuf":
            raise InvalidInput(
                f"--kind linear, and the target holds words, {str(y[0])[:40]!r} say; "
                "choose --kind logistic or softmax, or a column of numbers"
            )
        if self.kind is not Kind.auto:
            return self.kind
        found = kind_of(y)
        # Classes are tuned one against the rest.
        tuned = self.alphas is not None and found is Kind.softmax
        return Kind.logistic if tuned else found

    def estimator(self, kind: Kind) -> Any:
        """Return the unfitted estimator."""
        settings = {"mechanism": self.mechanism.value, "budget": self.contract()}
        if self.alphas is not None:
            return self._tuned(kind, settings | {"alphas": candidates(self.alphas)})
        from ..linear_model import (
            LinearRegression,
            LogisticRegression,
            SoftmaxRegression,
        )

        estimators: dict[Kind, Any] = {
            Kind.logistic: LogisticRegression,
            Kind.linear: LinearRegression,
            Kind.softmax: SoftmaxRegression,
        }
        alpha = ALPHA if self.alpha is None else self.alpha
        return estimators[kind](alpha=alpha, l1_ratio=self.l1_ratio, **settings)

    def _tuned(self, kind: Kind, settings: dict[str, Any]) -> Any:
        """Return the estimator that chooses among alphas."""
        from ..tuning import TunedClassifier, TunedRegressor

        if self.alpha is not None:
            raise InvalidInput("--alpha beside --alphas; give one alpha or candidates")
        if kind is Kind.softmax:
            raise Unsupported(
                "--alphas does not serve softmax models; give one --alpha, or tune "
                "each class against the rest with --kind logistic"
            )
        tuned = TunedRegressor if kind is Kind.linear else TunedClassifier
        return tuned(l1_ratios=(self.l1_ratio,), **settings)

    def contract(self) -> Any:
        """Return the budget that the options state; its defaults unless opted out."""
        from ..promise.budget import Budget

        stated = {name: getattr(self, name) for name in CONTRACT}
        terms = {name: value for name, value in stated.items() if value is not None}
        if not self.no_budget:
            return Budget(**terms)
        if terms:
            options = ", ".join("--" + name.replace("_", "-") for name in terms)
            raise InvalidInput(
                f"--no-budget beside {options}; without a budget there is no contract"
            )
        return None


def kind_of(y: Any) -> Kind:
    """Return the kind that suits a target, if nobody says otherwise.

    Two distinct values are classes, whatever they are; so are up to 50 words or whole
    numbers; other numbers are amounts.
    """
    import numpy as np

    values = np.asarray(y)
    n_classes = len(np.unique(values))
    if n_classes <= 2:
        return Kind.logistic
    numbers = values.dtype.kind in "iuf"
    if values.dtype.kind == "f" or (numbers and n_classes > MOST_CLASSES):
        return Kind.linear
    if n_classes > MOST_CLASSES:
        raise InvalidInput(
            f"the target has {n_classes} different words, more than {MOST_CLASSES}; "
            "choose another column with --target, or insist with --kind softmax"
        )
    return Kind.softmax


def candidates(words: str) -> tuple[float, ...]:
    """Return the alphas in a list like "1e-2,1e-3"."""
    try:
        return tuple(float(word) for word in words.split(","))
    except ValueError:
        raise InvalidInput(
            f"--alphas {words!r}; give numbers with commas between, like 1e-2,1e-3"
        ) from None


@dataclass(frozen=True)
class Fit(OnRegistry, Terms):
    """Fit a model to a table and keep it, so that it can forget.

    The first release is made under a contract: what it promises, and the noise that
    pays for it, are fixed before the data are seen. --no-budget makes no promise.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the model.")]
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The table: CSV or Parquet.")
    ]
    target: Annotated[
        str, typer.Option(metavar="COLUMN", help="What the model predicts.")
    ]
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Whose row it is: by these ids people are forgotten.",
        ),
    ] = None
    no_subject: Annotated[
        bool,
        typer.Option(
            "--no-subject",
            help="The rows are nobody's: the model has no people, and nobody can be "
            "forgotten from it.",
        ),
    ] = False
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="What a row weighs; not a feature then."),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Every class that the target may have, with commas between: part of "
            "the contract, so that a class without rows stays. Without it, a class "
            "leaves the model with its last row.",
        ),
    ] = None
    penalize_intercept: Annotated[
        bool,
        typer.Option(
            "--penalize-intercept",
            help="Penalise the intercept too: without it no model exists for a "
            "declared class that has no rows.",
        ),
    ] = False
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Leave out a column; may be repeated."),
    ] = None
    tuned_by: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="What chose alpha, columns or the contract by looking at these rows, "
            "'grid search' say. Removal does not undo the choice, so that nothing is "
            "promised. --alphas chooses removably, and needs no such words.",
        ),
    ] = None
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the model of that name.")
    ] = False
    readmit: Annotated[
        bool,
        typer.Option(
            "--readmit",
            help="Take in people who were forgotten: they came back.",
        ),
    ] = False

    def perform(self) -> int:
        """Read the table, fit, and say what is promised."""
        from .tables import read_table

        self._require_owners()
        require_file(self.file)
        table = read_table(
            self.file, self.target, self.subject, tuple(self.drop or ()), self.weight
        )
        kind = self.kind_for(table.y)
        model = self.estimator(kind)
        model.set_params(penalize_intercept=self.penalize_intercept)
        if self.classes is not None:
            model.set_params(classes=_classes(self.classes, table.y))
        with self.opened() as registry:
            if self.readmit and table.subjects:
                registry.requests.readmit(table.subjects)
            fit = registry.models.refit if self.replace else registry.fit
            fit(
                self.name,
                model,
                frame(table),
                table.y,
                subjects=table.subjects,
                sample_weight=table.weight,
                search=self.tuned_by,
            )
            kept = {one.name: one for one in registry.status().models}[self.name]
        if self.as_json:
            say_json(model_json(kept) | {"kind": kind.value, "n_rows": len(table.X)})
        else:
            self._say(kept, kind, table)
        return DONE

    def _require_owners(self) -> None:
        """Refuse a fit that does not say whose the rows are, or says it twice."""
        if self.subject is None and not self.no_subject:
            raise InvalidInput(
                "whose rows are these? name the column of ids with --subject, or say "
                "--no-subject: nobody can be forgotten from such a model"
            )
        if self.no_subject and (self.subject is not None or self.readmit):
            other = "--readmit" if self.subject is None else "--subject"
            raise InvalidInput(f"--no-subject beside {other}; choose one of them")

    def _say(self, kept: "ModelStatus", kind: Kind, table: "Table") -> None:
        """Print what was fitted and what is promised."""
        n_rows, n_features = table.X.shape
        chosen = " (by its target; --kind says otherwise)"
        people = counted(kept.n_people, "person", "people")
        if table.subjects is None:
            people = "nobody"
        lines: list[tuple[str, object]] = [
            ("model", kept.name),
            ("kind", f"{kind}{chosen if self.kind is Kind.auto else ''}"),
            ("rows", f"{n_rows} of {people}, {counted(n_features, 'feature')}"),
            ("release", kept.number),
            ("promise", promise(kept.certificate)),
        ]
        say(facts(lines))
        if table.subjects is None:
            note("The model has no people: nobody can be forgotten from it.")
        if self.tuned_by is not None:
            note(
                "Removal does not undo a choice made on the rows: nothing is promised."
            )
        if self.no_budget:
            note("Without a budget no claim is made about what the model reveals.")


def _classes(words: str, y: Any) -> list[Any]:
    """Return the classes in a list like "no,yes", of the type that the target has."""
    import numpy as np

    given = [word.strip() for word in words.split(",")]
    kind = np.asarray(y).dtype
    if kind.kind not in "iufb":
        return given
    try:
        return [kind.type(float(word)).item() for word in given]
    except ValueError:
        raise InvalidInput(
            f"--classes {words!r}; the target holds numbers: give numbers with commas "
            "between"
        ) from None


def frame(table: "Table") -> Any:
    """Return the features under their names, which then travel with the model."""
    columns = zip(table.features, table.X.T, strict=True)
    return import_module("pyarrow").table(dict(columns))
