# SPDX-License-Identifier: Apache-2.0
"""Commands on the rows of one model: fit and plan."""

import sys
import warnings
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput, Unsupported
from .common import (
    DONE,
    ConfirmOptions,
    RegistryOptions,
    describe_promise,
    format_count,
    format_pairs,
    model_to_json,
    print_json,
    print_note,
    print_text,
    require_file,
)

if TYPE_CHECKING:
    from ..registry import LeftOut, ModelStatus, Registry
    from .tables import TrainingTable

ALPHA = 1e-3
# A target with more distinct values than this is not guessed to be classes.
MOST_CLASSES = 50
BUDGET_OPTIONS = ("epsilon", "delta", "sigma", "releases", "row_norm")


class ModelKind(StrEnum):
    """Which kind of model to fit."""

    auto = "auto"
    logistic = "logistic"
    linear = "linear"
    softmax = "softmax"


class MechanismName(StrEnum):
    """How removals are computed."""

    newton = "newton"
    jackknife = "jackknife"
    rescaled = "rescaled"
    retrain = "retrain"


@dataclass(frozen=True, kw_only=True)
class EstimatorOptions:
    """Options that choose the estimator and its budget."""

    kind: Annotated[
        ModelKind,
        typer.Option(
            help="auto: logistic for two distinct values, softmax for up to 50 words "
            "or whole numbers, otherwise linear."
        ),
    ] = ModelKind.auto
    alpha: Annotated[
        float | None, typer.Option(help="Factor of the penalty (default 1e-3).")
    ] = None
    alphas: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Candidates for alpha, such as 1e-2,1e-3: choose one by "
            "cross-validation, and choose again when people are forgotten.",
        ),
    ] = None
    l1_ratio: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Share of L1 in the penalty: 0 is L2, 1 is L1."
        ),
    ] = 0.0
    mechanism: Annotated[
        MechanismName, typer.Option(help="How to compute removals.")
    ] = MechanismName.newton
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy parameter epsilon (default 1).")
    ] = None
    delta: Annotated[
        float | None, typer.Option(help="Privacy parameter delta (default 1e-5).")
    ] = None
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise on each parameter (default 0.1)."
        ),
    ] = None
    releases: Annotated[
        int | None,
        typer.Option(
            help="Promise it for this many releases together, including the first "
            "(default: for each release on its own)."
        ),
    ] = None
    row_norm: Annotated[
        float | None,
        typer.Option(help="Declared bound on the norm of rows (default: measured)."),
    ] = None
    no_budget: Annotated[
        bool, typer.Option("--no-budget", help="Add no noise, and promise nothing.")
    ] = False

    def choose_kind(self, y: Any) -> ModelKind:
        """Return the kind that was asked for, or the one that fits the target."""
        if self.kind is ModelKind.linear and y.dtype.kind not in "iuf":
            raise InvalidInput(
                f"--kind linear, but the target holds words such as {str(y[0])[:40]!r}"
                "; choose --kind logistic or softmax, or a column of numbers"
            )
        if self.kind is not ModelKind.auto:
            return self.kind
        guessed = guess_kind(y)
        # Tuning fits one class against the rest, which is the logistic model.
        tuned = self.alphas is not None and guessed is ModelKind.softmax
        return ModelKind.logistic if tuned else guessed

    def build_estimator(self, kind: ModelKind) -> Any:
        """Return the unfitted estimator."""
        settings = {
            "mechanism": self.mechanism.value,
            "budget": self.build_budget(),
            "verbose": sys.stderr.isatty(),
        }
        if self.alphas is not None:
            return self._build_tuned(kind, settings)
        from ..linear_model import (
            LinearRegression,
            LogisticRegression,
            SoftmaxRegression,
        )

        estimators: dict[ModelKind, Any] = {
            ModelKind.logistic: LogisticRegression,
            ModelKind.linear: LinearRegression,
            ModelKind.softmax: SoftmaxRegression,
        }
        alpha = ALPHA if self.alpha is None else self.alpha
        return estimators[kind](alpha=alpha, l1_ratio=self.l1_ratio, **settings)

    def _build_tuned(self, kind: ModelKind, settings: dict[str, Any]) -> Any:
        """Return the unfitted estimator that chooses among alphas."""
        from ..linear_model.tuned import TunedClassifier, TunedRegressor

        if self.alpha is not None:
            raise InvalidInput("--alpha with --alphas; give only one of them")
        if kind is ModelKind.softmax:
            raise Unsupported(
                "--alphas does not work with softmax models; give one --alpha, or tune "
                "each class against the rest with --kind logistic"
            )
        estimator = TunedRegressor if kind is ModelKind.linear else TunedClassifier
        alphas = parse_alphas(self.alphas or "")
        return estimator(alphas=alphas, l1_ratios=(self.l1_ratio,), **settings)

    def build_budget(self) -> Any:
        """Return the budget of the options; None with --no-budget."""
        from ..promise.budget import Budget

        stated = {name: getattr(self, name) for name in BUDGET_OPTIONS}
        given = {name: value for name, value in stated.items() if value is not None}
        if not self.no_budget:
            return Budget(**given)
        if given:
            options = ", ".join("--" + name.replace("_", "-") for name in given)
            raise InvalidInput(
                f"--no-budget with {options}; omit --no-budget, or omit the others"
            )
        return None


def guess_kind(y: Any) -> ModelKind:
    """Return the kind of model that fits a target.

    Two distinct values are classes, whatever they are, and so are up to 50 words or
    whole numbers. Other numbers are amounts.
    """
    import numpy as np

    values = np.asarray(y)
    n_classes = len(np.unique(values))
    if n_classes <= 2:
        return ModelKind.logistic
    numbers = values.dtype.kind in "iuf"
    if values.dtype.kind == "f" or (numbers and n_classes > MOST_CLASSES):
        return ModelKind.linear
    if n_classes > MOST_CLASSES:
        raise InvalidInput(
            f"the target has {n_classes} different words, more than {MOST_CLASSES}; "
            "choose another column with --target, or insist with --kind softmax"
        )
    return ModelKind.softmax


def parse_alphas(text: str) -> tuple[float, ...]:
    """Return the alphas in a list such as "1e-2,1e-3"."""
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise InvalidInput(
            f"--alphas {text!r}; give numbers separated by commas, such as 1e-2,1e-3"
        ) from None


def parse_classes(text: str, y: Any) -> list[Any]:
    """Return the classes in a list such as "no,yes", with the target's type."""
    import numpy as np

    words = [word.strip() for word in text.split(",")]
    dtype = np.asarray(y).dtype
    if dtype.kind not in "iufb":
        return words
    try:
        return [dtype.type(float(word)).item() for word in words]
    except ValueError:
        raise InvalidInput(
            f"--classes {text!r}, but the target holds numbers; give numbers separated "
            "by commas"
        ) from None


@dataclass(frozen=True)
class FitCommand(RegistryOptions, ConfirmOptions, EstimatorOptions):
    """Fit a model to a table, and keep it so that it can forget.

    The first release is made under a budget: what it promises, and the noise that pays
    for it, are fixed before the data are seen. With --no-budget nothing is promised.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The table: CSV or Parquet.")
    ]
    target: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column that the model predicts.")
    ]
    subject: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of ids that say whose row it is."),
    ] = None
    no_subject: Annotated[
        bool,
        typer.Option(
            "--no-subject",
            help="The rows belong to nobody: nobody can be forgotten from the model.",
        ),
    ] = False
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of weights; not a feature."),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="All classes that the target may have, separated by commas: declared "
            "in advance, so that a class without rows stays in the model. Without this "
            "option a class leaves the model with its last row.",
        ),
    ] = None
    penalize_intercept: Annotated[
        bool,
        typer.Option(
            "--penalize-intercept",
            help="Penalise the intercept too. Otherwise a declared class without rows "
            "cannot be fitted.",
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
            help="Declare what chose alpha, columns or the budget by looking at these "
            "rows, e.g. 'grid search'. Removals do not undo that choice, so nothing is "
            "promised. Not needed with --alphas, which chooses again.",
        ),
    ] = None
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the model of this name.")
    ] = False
    readmit: Annotated[
        bool,
        typer.Option(
            "--readmit",
            help="Accept people who were forgotten before, because they came back.",
        ),
    ] = False
    without_forgotten: Annotated[
        bool,
        typer.Option(
            "--without-forgotten",
            help="Leave out the rows of people who were forgotten before.",
        ),
    ] = False

    def perform(self) -> int:
        """Read the table, fit, and print what is promised."""
        from .tables import read_table

        self._require_subjects()
        require_file(self.file)
        table = read_table(
            self.file,
            self.target,
            subject=self.subject,
            drop=tuple(self.drop or ()),
            weight=self.weight,
        )
        kind = self.choose_kind(table.y)
        model = self.build_estimator(kind)
        model.set_params(penalize_intercept=self.penalize_intercept)
        if self.classes is not None:
            model.set_params(classes=parse_classes(self.classes, table.y))
        with self.open_registry() as registry:
            if self.replace:
                self.confirm(f"Replace model {self.name}, and erase its rows?")
            if self.readmit and table.subjects:
                registry.requests.readmit(table.subjects)
            left_out = self._fit(registry, model, table=table)
            fitted = {one.name: one for one in registry.status().models}[self.name]
        if self.as_json:
            n_rows = len(table.X) - left_out.n_rows
            extra = {"kind": kind.value, "n_rows": n_rows}
            left = {"left_out": left_out._asdict()}
            print_json(model_to_json(fitted) | extra | left)
        else:
            self._print(fitted, kind, table=table, left_out=left_out)
        if left_out.n_rows and not self.as_json:
            rows = format_count(left_out.n_rows, "row")
            people = format_count(left_out.n_people, "person", plural="people")
            print_note(f"left out: {rows} of {people} who left before")
        return DONE

    def _fit(
        self, registry: "Registry", model: Any, *, table: "TrainingTable"
    ) -> "LeftOut":
        """Fit and store the model; name the lines of people who were forgotten."""
        from ..registry import ForgottenInData
        from .tables import locate_rows

        fit = registry.models.refit if self.replace else registry.fit
        try:
            return fit(
                self.name,
                model,
                name_columns(table),
                table.y,
                subjects=table.subjects,
                sample_weight=table.weight,
                search=self.tuned_by,
                without_forgotten=self.without_forgotten,
            )
        except ForgottenInData as error:
            people = format_count(error.n_people, "person", plural="people")
            raise InvalidInput(
                f"{self.file}, {locate_rows(self.file, error.rows)}: rows of {people} "
                "who were forgotten; a fit would bring them back: leave them out with "
                "--without-forgotten, or state with --readmit that they came back"
            ) from None

    def _require_subjects(self) -> None:
        """Raise unless the options say, once, whose rows these are."""
        if self.subject is None and not self.no_subject:
            raise InvalidInput(
                "whose rows are these? name the column of ids with --subject, or give "
                "--no-subject if nobody needs to be forgotten from the model"
            )
        if self.no_subject and (self.subject is not None or self.readmit):
            other = "--readmit" if self.subject is None else "--subject"
            raise InvalidInput(f"--no-subject with {other}; give only one of them")
        if self.without_forgotten and (self.no_subject or self.readmit):
            other = "--no-subject" if self.no_subject else "--readmit"
            raise InvalidInput(
                f"--without-forgotten with {other}; give only one of them"
            )

    def _print(
        self,
        fitted: "ModelStatus",
        kind: ModelKind,
        *,
        table: "TrainingTable",
        left_out: "LeftOut",
    ) -> None:
        """Print what was fitted and what is promised."""
        n_rows, n_features = table.X.shape
        n_rows -= left_out.n_rows
        guessed = " (guessed from the target; choose with --kind)"
        people = format_count(fitted.n_people, "person", plural="people")
        whose = "without owners" if table.subjects is None else f"of {people}"
        lines: list[tuple[str, object]] = [
            ("model", fitted.name),
            ("kind", f"{kind}{guessed if self.kind is ModelKind.auto else ''}"),
            ("rows", f"{n_rows} {whose}, {format_count(n_features, 'feature')}"),
            ("release", fitted.number),
            ("promise", describe_promise(fitted.certificate)),
        ]
        print_text(format_pairs(lines))
        if table.subjects is None:
            print_note("The model has no people: nobody can be forgotten from it.")
        if self.tuned_by is not None:
            print_note(
                "Removals do not undo a choice made by looking at the rows: nothing is "
                "promised."
            )
        if self.no_budget:
            print_note(
                "Without a budget nothing is promised about what a release reveals."
            )


def name_columns(table: "TrainingTable") -> Any:
    """Return the features as named columns; the model keeps the names."""
    columns = zip(table.features, table.X.T, strict=True)
    return import_module("pyarrow").table(dict(columns))


@dataclass(frozen=True)
class PlanCommand(RegistryOptions):
    """Show how many rows may be removed under a model's budget.

    It also shows how much accuracy the noise costs. A plan reads the rows in the
    registry, so no certificate covers a budget that you choose from it. Keep the
    figures private.
    """

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]

    def perform(self) -> int:
        """Plan on the rows in the registry and print the tables."""
        from ..plan import PlanningLooksAtData

        with self.open_registry() as registry, warnings.catch_warnings():
            # Printed below as a sentence, not as a Python warning.
            warnings.simplefilter("ignore", PlanningLooksAtData)
            report = registry.models.plan(self.name)
        if self.as_json:
            print_json(asdict(report))
        else:
            print_note("this plan was made from the rows: keep it private")
            print_text(report.table().rstrip())
        return DONE
