# SPDX-License-Identifier: Apache-2.0
"""Options that choose an estimator and its budget; ``advise`` recommends one."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput, Unsupported
from .options import Drop, KeepRows, Target, require_file
from .output import Result

if TYPE_CHECKING:
    from ..tables import TrainingTable


class ModelKind(StrEnum):
    """Which kind of model to fit."""

    auto = "auto"
    logistic = "logistic"
    linear = "linear"
    softmax = "softmax"


class TaskName(StrEnum):
    """What to do with the target."""

    auto = "auto"
    classification = "classification"
    regression = "regression"


class LossName(StrEnum):
    """What is predicted of the target, where that is not the default of the kind."""

    auto = "auto"
    poisson = "poisson"
    gamma = "gamma"
    tweedie = "tweedie"
    negative_binomial = "negative-binomial"
    quantile = "quantile"
    survival = "survival"


# The option that a loss takes, and what is taken without it.
SHAPES: dict[LossName, dict[str, Any]] = {
    LossName.tweedie: {"power": 1.5},
    LossName.negative_binomial: {"dispersion": 1.0, "largest": None},
    LossName.quantile: {"quantile": 0.5, "width": 1.0},
    LossName.survival: {"breaks": ""},
}


class MechanismName(StrEnum):
    """How removals are computed."""

    auto = "auto"
    newton = "newton"
    jackknife = "jackknife"
    retrain = "retrain"
    matrix_free = "matrix-free"


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options that choose the estimator."""

    task: Annotated[
        TaskName,
        typer.Option(
            help="auto: classification for two distinct values, words, and up to 50 "
            "whole numbers, otherwise regression."
        ),
    ] = TaskName.auto
    kind: Annotated[
        ModelKind,
        typer.Option(
            help="auto: logistic for two classes, softmax for more, linear for "
            "regression."
        ),
    ] = ModelKind.auto
    loss: Annotated[
        LossName,
        typer.Option(
            help="For counts, amounts and quantiles. poisson: counts. gamma: positive "
            "amounts. tweedie: amounts, many of them zero. survival: times until an "
            "event. auto: squares for amounts."
        ),
    ] = LossName.auto
    power: Annotated[
        float | None,
        typer.Option(help="Of tweedie: how the variance grows, 1 to 2 (default 1.5)."),
    ] = None
    dispersion: Annotated[
        float | None,
        typer.Option(help="Of negative-binomial: its dispersion (default 1)."),
    ] = None
    largest: Annotated[
        float | None,
        typer.Option(
            help="Of negative-binomial: the largest count that a row may ever have; "
            "others are refused."
        ),
    ] = None
    quantile: Annotated[
        float | None, typer.Option(help="Of quantile: which (default 0.5).")
    ] = None
    width: Annotated[
        float | None,
        typer.Option(
            help="Of quantile: over what distance in the target its kink is smoothed "
            "(default 1)."
        ),
    ] = None
    breaks: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Of survival: times between which the hazard is constant, such as "
            "6,12,24 (default: it is the same at all times).",
        ),
    ] = None
    alpha: Annotated[
        float | None, typer.Option(help="Factor of the penalty (default 1e-4).")
    ] = None
    c: Annotated[
        float | None,
        typer.Option(
            "--C",
            help="Instead of alpha, as in scikit-learn: the larger, the weaker "
            "the penalty.",
        ),
    ] = None
    alphas: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Candidates for alpha, such as 1e-2,1e-3: choose one by "
            "cross-validation, and choose again when people are forgotten.",
        ),
    ] = None
    search: Annotated[
        bool,
        typer.Option(
            "--search", help="The same, with candidates from 1e-2 down to 1e-5."
        ),
    ] = False
    l1_ratio: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Share of L1 in the penalty: 0 is L2, 1 is L1."
        ),
    ] = 0.0
    class_weight: Annotated[
        str | None,
        typer.Option(
            metavar="A=1,B=5",
            help="How often a row of each class counts, fixed without looking at the "
            "rows; or balanced, for the same weight of every class at all times.",
        ),
    ] = None
    ridge: Annotated[
        float,
        typer.Option(min=0.0, help="Factor of an L2 penalty beside the other one."),
    ] = 0.0
    no_intercept: Annotated[
        bool, typer.Option("--no-intercept", help="Fit no intercept.")
    ] = False
    penalize_intercept: Annotated[
        bool,
        typer.Option(
            "--penalize-intercept",
            help="Penalise the intercept too. Otherwise a declared class without rows "
            "cannot be fitted.",
        ),
    ] = False
    mechanism: Annotated[
        MechanismName, typer.Option(help="How to compute removals.")
    ] = MechanismName.auto

    def choose_task(self) -> str | None:
        """Return the task that the options ask for; None to follow the target."""
        asked = None if self.task is TaskName.auto else self.task.value
        if self.loss is not LossName.auto:
            self._require_alone(asked)
            return TaskName.regression.value
        if self.kind is ModelKind.auto:
            return asked
        linear = self.kind is ModelKind.linear
        implied = TaskName.regression if linear else TaskName.classification
        if asked not in (None, implied.value):
            raise InvalidInput(
                f"--task {asked} with --kind {self.kind.value}, which is for "
                f"{implied.value}; give only one of them"
            )
        return implied.value

    def require_time(self, time: str | None) -> None:
        """Raise InvalidInput unless survival, and it alone, has a column of times."""
        survival = self.loss is LossName.survival
        if survival != (time is not None):
            given, other = ("--loss survival", "--time")
            if not survival:
                given, other = other, given
            raise InvalidInput(f"{given} without {other}; give both, or neither")

    def _require_alone(self, task: str | None) -> None:
        """Raise InvalidInput for options that a loss leaves no room for."""
        kind = self.kind not in (ModelKind.auto, ModelKind.linear)
        others = {
            f"--task {task}": task == TaskName.classification,
            f"--kind {self.kind.value}": kind,
            "--class-weight": self.class_weight is not None,
            "--alphas": self.alphas is not None,
            "--search": self.search,
        }
        for other, given in others.items():
            if given:
                raise InvalidInput(
                    f"--loss {self.loss.value} with {other}; give only one of them"
                )

    def _read_shape(self) -> dict[str, Any]:
        """Return the parameters of the loss; refuse those of another one."""
        own: dict[str, Any] = dict(SHAPES.get(self.loss, {}))
        for loss, names in SHAPES.items():
            for name in names:
                value = getattr(self, name)
                if value is None:
                    continue
                if name not in own:
                    raise InvalidInput(
                        f"--{name} is for --loss {loss.value}; give both, or omit it"
                    )
                own[name] = value
        if "breaks" in own:
            own["breaks"] = parse_numbers(own["breaks"], option="--breaks", like="6,12")
        return own

    def choose_kind(self, task: str, n_classes: int) -> ModelKind:
        """Return the kind that was asked for, or the one that fits the task."""
        if self.kind is not ModelKind.auto:
            return self.kind
        if task == TaskName.regression:
            return ModelKind.linear
        # Tuning fits one class against the rest, which is the logistic model.
        logistic = n_classes <= 2 or self.is_tuned
        return ModelKind.logistic if logistic else ModelKind.softmax

    @property
    def is_tuned(self) -> bool:
        """Whether alpha is chosen by cross-validation."""
        return self.alphas is not None or self.search

    def build_estimator(self, kind: ModelKind, budget: Any = None) -> Any:
        """Return the unfitted estimator."""
        settings: dict[str, Any] = {
            "mechanism": self.mechanism.value,
            "budget": budget,
            "ridge": self.ridge,
            "fit_intercept": not self.no_intercept,
            "penalize_intercept": self.penalize_intercept,
            "verbose": sys.stderr.isatty(),
        }
        shape = self._read_shape()
        if self.is_tuned:
            return self._build_tuned(kind, settings)
        from ..linear_model import (
            GammaRegressor,
            LinearRegression,
            LogisticRegression,
            NegativeBinomialRegressor,
            PiecewiseExponential,
            PoissonRegressor,
            QuantileRegressor,
            SoftmaxRegression,
            TweedieRegressor,
        )
        from ..linear_model.parameters import ALPHA

        estimators: dict[ModelKind, Any] = {
            ModelKind.logistic: LogisticRegression,
            ModelKind.linear: LinearRegression,
            ModelKind.softmax: SoftmaxRegression,
        }
        if self.c is not None and self.alpha is not None:
            raise InvalidInput("--alpha with --C; give only one of them")
        if self.c is None:
            settings["alpha"] = ALPHA if self.alpha is None else self.alpha
        by_loss: dict[LossName, Any] = {
            LossName.poisson: PoissonRegressor,
            LossName.gamma: GammaRegressor,
            LossName.tweedie: TweedieRegressor,
            LossName.negative_binomial: NegativeBinomialRegressor,
            LossName.quantile: QuantileRegressor,
            LossName.survival: PiecewiseExponential,
        }
        settings |= shape
        estimator = by_loss.get(self.loss, estimators[kind])
        return estimator(C=self.c, l1_ratio=self.l1_ratio, **settings)

    def build_for_table(
        self, table: "TrainingTable", *, classes: Sequence[Any] | None, budget: Any
    ) -> tuple[ModelKind, Any]:
        """Return the kind of model for a table, and the unfitted estimator.

        ``classes`` are those declared; None learns them.
        """
        from ..tables import describe_preprocessing

        n_classes = len(classes or set(table.y.tolist()))
        kind = self.choose_kind(table.schema.task, n_classes)
        model = self.build_estimator(kind, budget)
        model.set_params(preprocessing=describe_preprocessing(table))
        if classes is not None:
            model.set_params(classes=list(classes))
        if self.class_weight is not None:
            weights = parse_class_weight(self.class_weight, table.y)
            model.set_params(class_weight=weights)
        return kind, model

    def _build_tuned(self, kind: ModelKind, settings: dict[str, Any]) -> Any:
        """Return the unfitted estimator that chooses among alphas."""
        from ..linear_model.tuned import ALPHAS, TunedClassifier, TunedRegressor

        asked = "--search" if self.search else "--alphas"
        others: dict[str, object] = {"--alpha": self.alpha, "--C": self.c}
        if self.search:
            others["--alphas"] = self.alphas
        for other, value in others.items():
            if value is not None:
                raise InvalidInput(f"{other} with {asked}; give only one of them")
        if kind is ModelKind.softmax:
            raise Unsupported(
                f"{asked} does not work with softmax models; give one --alpha, or tune "
                "each class against the rest with --kind logistic"
            )
        estimator = TunedRegressor if kind is ModelKind.linear else TunedClassifier
        alphas = (
            ALPHAS
            if self.alphas is None
            else parse_numbers(self.alphas, option="--alphas", like="1e-2,1e-3")
        )
        return estimator(alphas=alphas, l1_ratios=(self.l1_ratio,), **settings)


Epsilon = Annotated[
    float | None, typer.Option(help="Privacy parameter epsilon (default 1).")
]
Delta = Annotated[
    float | None, typer.Option(help="Privacy parameter delta (default 1e-5).")
]
Releases = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Promise it for this many releases together, including the first "
        "(default: for each release on its own).",
    ),
]
RowNorm = Annotated[
    float | None,
    typer.Option(help="Declared bound on the norm of rows (default: measured)."),
]


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """Options that fix what is promised."""

    epsilon: Epsilon = None
    delta: Delta = None
    sigma: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the noise on each parameter (default 0.001, "
            "or 0.1 where rows are not kept)."
        ),
    ] = None
    tau: Annotated[
        float | None,
        typer.Option(
            help="How far a solver may be from its minimiser (default: 1 % of what "
            "the budget allows)."
        ),
    ] = None
    releases: Releases = None
    row_norm: RowNorm = None
    no_budget: Annotated[
        bool, typer.Option("--no-budget", help="Add no noise, and promise nothing.")
    ] = False

    def build_budget(self) -> Any:
        """Return the budget of the options; None with --no-budget."""
        from ..promise.budget import Budget

        stated = asdict(self)
        del stated["no_budget"]
        given = {name: value for name, value in stated.items() if value is not None}
        if not self.no_budget:
            return Budget(**given)
        if given:
            options = ", ".join("--" + name.replace("_", "-") for name in given)
            raise InvalidInput(
                f"--no-budget with {options}; omit --no-budget, or omit the others"
            )
        return None


def parse_numbers(text: str, *, option: str, like: str) -> tuple[float, ...]:
    """Return the numbers in a list such as "1e-2,1e-3"; none if it is empty."""
    try:
        return tuple(float(word) for word in text.split(",") if text)
    except ValueError:
        raise InvalidInput(
            f"{option} {text!r}; give numbers separated by commas, such as {like}"
        ) from None


def parse_classes(text: str, y: Any) -> list[Any]:
    """Return the classes in a list such as "no,yes", with the target's type."""
    return [_parse_label(word, y, option="--classes") for word in text.split(",")]


def parse_class_weight(text: str, y: Any) -> dict[Any, float] | str:
    """Return the weights in a list such as "no=1,yes=5", by classes of the target."""
    if text == "balanced":
        return text
    weights = {}
    for pair in text.split(","):
        word, _, number = pair.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            raise InvalidInput(
                f"--class-weight {text!r}; give classes and numbers, such as no=1,yes=5"
            ) from None
        weights[_parse_label(word, y, option="--class-weight")] = weight
    return weights


def _parse_label(word: str, y: Any, *, option: str) -> Any:
    """Return a class that somebody typed, with the target's type."""
    import numpy as np

    dtype = np.asarray(y).dtype
    if dtype.kind not in "iufb":
        return word.strip()
    try:
        return dtype.type(float(word)).item()
    except ValueError:
        raise InvalidInput(
            f"{option}: {word[:40]!r}, but the target holds numbers; give numbers "
            "separated by commas"
        ) from None


def advise(
    file: Annotated[
        Path, typer.Argument(metavar="TABLE", help="The table: CSV or Parquet.")
    ],
    *,
    target: Target,
    subject: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of ids that say whose row it is; without it each request "
            "removes one row.",
        ),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="As you will say to fit.")
    ] = None,
    exposure: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="As you will say to fit.")
    ] = None,
    offset: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="As you will say to fit.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="As you will say to fit.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="As you will say to fit.")
    ] = None,
    drop: Drop = None,
    keep_rows: Annotated[
        KeepRows,
        typer.Option(help="As you will say to fit: whether rows are kept, or never."),
    ] = KeepRows.registry,
    max_seconds: Annotated[
        float,
        typer.Option(
            help="How much processor time a request may take on average, in seconds, "
            "where rows are kept."
        ),
    ] = 1.0,
    max_loss: Annotated[
        float,
        typer.Option(
            help="How much accuracy, or R2, the noise may cost where they are not: "
            "0.01 is one point."
        ),
    ] = 0.01,
    requests: Annotated[
        int,
        typer.Option(min=1, help="How many requests you expect before you fit again."),
    ] = 1000,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Plot the results to this file."),
    ] = None,
    progress: Annotated[
        bool,
        typer.Option(
            "--progress",
            help="Draw a progress bar even where standard error is no terminal.",
        ),
    ] = False,
    estimator: ModelOptions,
    epsilon: Epsilon = None,
    delta: Delta = None,
    releases: Releases = None,
    row_norm: RowNorm = None,
    # What the command finds out is no option of it, but deserves a word.
    sigma: Annotated[float | None, typer.Option(hidden=True)] = None,
    no_budget: Annotated[bool, typer.Option("--no-budget", hidden=True)] = False,
) -> Result:
    """Say which sigma to take, and what each sigma does.

    It tries a model like yours, and lets people leave it. For each size of the noise it
    prints the accuracy, how many decisions about everybody else one request changes,
    how long a request takes, how many requests read the rows again, and what somebody
    with the release before could guess of a leaver. Where rows are not kept, or several
    releases are promised together, also how many may leave. It recommends the smallest
    noise at an acceptable time, and without rows the largest that does little harm.
    Give public or older data: no certificate covers a budget that was chosen from the
    rows of the model itself.
    """
    import numpy as np

    from ..plan import advise as ask
    from ..tables import Roles, read_table

    if sigma is not None or no_budget:
        given = "--no-budget" if no_budget else "--sigma"
        raise InvalidInput(f"{given}, but sigma is what advise finds out; omit it")
    estimator.require_time(time)
    require_file(file)
    task = estimator.choose_task()
    roles = Roles(
        target=target,
        subject=subject,
        weight=weight,
        exposure=exposure,
        offset=offset,
        time=time,
        text=text,
        drop=tuple(drop or ()),
        task=task,
        bins=keep_rows is not KeepRows.never,
    )
    table = read_table(file, roles)
    _, model = estimator.build_for_table(
        table, classes=table.schema.classes, budget=None
    )
    if keep_rows is KeepRows.never:
        if estimator.alphas is not None or estimator.search:
            raise InvalidInput(
                "--keep-rows never with candidates for alpha: choosing again needs the "
                "rows; give one --alpha, or keep the rows"
            )
        model.set_params(keep_data=False)
    promise = {
        "epsilon": epsilon,
        "delta": delta,
        "releases": releases,
        "row_norm": row_norm,
    }
    # What is not promised here is chosen for as many people as there are.
    promised = {name: value for name, value in promise.items() if value is not None}
    seen = table.y
    if table.time is not None:
        seen = np.column_stack([table.time, seen])
    advice = ask(
        table.X,
        seen,
        model,
        subjects=table.subjects,
        sample_weight=table.weight,
        exposure=table.exposure,
        offset=table.offset,
        verbose=progress,
        max_seconds=max_seconds,
        max_loss=max_loss,
        requests=requests,
        **promised,
    )
    if plot is not None:
        advice.plot(plot)
    budget = advice.budget
    options = [
        f"--{name} {getattr(budget, name)!r}" for name in ("epsilon", "delta", "sigma")
    ]
    if budget.releases is not None:
        options.append(f"--releases {budget.releases}")
    if budget.row_norm is not None:
        options.append(f"--row-norm {budget.row_norm!r}")
    if not advice.rows_kept:
        options.append("--keep-rows never")
    found = {
        "sigma": budget.sigma,
        "may_leave": advice.may_leave,
        "line": advice.line,
        "options": " ".join(options),
        "sentences": advice.sentences,
    }
    how = f"To fit with it: expunge fit ... {' '.join(options)}"
    return Result(found | asdict(advice), str(advice).rstrip(), [how])
