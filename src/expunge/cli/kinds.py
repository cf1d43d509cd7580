# SPDX-License-Identifier: Apache-2.0
"""Kinds: which estimator a target and the options of ``fit`` ask for."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from ..exceptions import InvalidInput, Unsupported

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
        from ..budget import Budget

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
