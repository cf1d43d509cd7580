# SPDX-License-Identifier: Apache-2.0
r"""Regressions of counts, amounts and quantiles, with exposures and offsets.

They minimise, with D the half deviance of a row and m = e^(x.coef + intercept),

    (1/W) sum_i w_i D(y_i, m_i) + alpha/2 |coef|^2,

which is what scikit-learn's estimators of these names minimise. Exposures and offsets
become responses, weights and labels where rows are read (``read_responses``): a fit, an
addition and a removal by content agree because they read rows alike.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from sklearn import linear_model
from sklearn.metrics import mean_pinball_loss, mean_tweedie_deviance
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags

from ..core.arrays import Vector
from ..core.losses import (
    Gamma,
    HalfSquared,
    Loss,
    NegativeBinomial,
    Pinball,
    Poisson,
    Tweedie,
    require_factors,
)
from ..core.objective import check_weights
from ..display.plots import BLUE, make_figure, show_shares
from ..exceptions import ExpungeError, InvalidInput, Unsupported
from ..long.table import LongTable
from ..private_model.labels import Labels
from .base import init_with, private_model, snapshot_of
from .estimators import Regression
from .fitting import make_plain
from .parameters import require_parameters
from .rows import read_beside, read_responses

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class GeneralisedRegression(Regression):
    """A regression whose loss follows from its class, with exposures and offsets."""

    takes_offsets: ClassVar[bool] = True

    @abstractmethod
    def to_sklearn(self) -> Any:
        """Return a plain scikit-learn estimator with the release in it."""

    @abstractmethod
    def _mean_deviance(self, y: Vector, mean: Vector, weight: Vector | None) -> float:
        """Return the mean deviance of responses from predicted means."""

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        engine: Any = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Self:
        """Fit the model and make its first release.

        Parameters
        ----------
        X, y, subjects, sample_weight, engine
            As for every estimator.
        exposure
            For how long, or over how much, each response was counted: the mean is the
            exposure times e^(x.coef + intercept). It weighs rows as
            ``fit(X, y / exposure, sample_weight=exposure)`` of scikit-learn's
            PoissonRegressor does, so that alpha is beside a mean over the exposure.
        offset
            Is added to x.coef + intercept. Unlike an exposure it changes no weight, so
            that alpha is beside a mean over the rows.
        """
        if isinstance(X, LongTable):
            if exposure is not None or offset is not None:
                raise Unsupported(
                    "exposure and offset are for rows in memory; put responses for an "
                    "exposure of one, and weights, into columns of the table"
                )
            return super().fit(X, y, subjects, sample_weight, engine)
        if y is not None:
            y, sample_weight = self.label(
                y, sample_weight=sample_weight, exposure=exposure, offset=offset
            )
        return super().fit(X, y, subjects, sample_weight, engine)

    def label(
        self,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> tuple[Any, Any]:
        """Return labels and weights of rows, as a registry takes them.

        Parameters
        ----------
        y, sample_weight, exposure, offset
            As ``fit`` takes them.
        """
        require_parameters(self.get_params(deep=False))
        return read_responses(
            self.loss_of(self.get_params(deep=False)),
            _one_response(y),
            sample_weight=sample_weight,
            exposure=exposure,
            offset=offset,
        )

    def forget(
        self,
        subjects: Iterable[object] | None = None,
        *,
        rows: ArrayLike | None = None,
        X: Any = None,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Self:
        """Remove people, or rows, and make a new release. All or nothing.

        Parameters
        ----------
        subjects, rows
            Whom to forget, as for every estimator.
        X, y, sample_weight, exposure, offset
            The rows to forget, exactly as they were fitted.
        """
        if y is not None:
            y, sample_weight = self._read_more(
                y, sample_weight=sample_weight, exposure=exposure, offset=offset
            )
        return super().forget(
            subjects, rows=rows, X=X, y=y, sample_weight=sample_weight
        )

    def add(
        self,
        X: Any,
        y: ArrayLike,
        *,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Self:
        """Add rows to the fitted model and make a new release. All or nothing.

        Parameters
        ----------
        X, y, subjects, sample_weight
            The new rows, as for every estimator.
        exposure, offset
            Those of the new rows, if the model was fitted with such.
        """
        y, sample_weight = self._read_more(
            y, sample_weight=sample_weight, exposure=exposure, offset=offset
        )
        return super().add(X, y, subjects=subjects, sample_weight=sample_weight)

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: Sequence[Any] | None = None,
        sample_weight: ArrayLike | None = None,
        subjects: Iterable[object] | None = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Self:
        """Fit the model to the first rows, and ``add`` those of later calls.

        Parameters
        ----------
        X, y, classes, sample_weight, subjects
            As for every estimator; there are no classes.
        exposure, offset
            As ``fit`` takes them.
        """
        if classes is not None:
            raise InvalidInput("classes=...; a regression has none; leave it out")
        of_rows: dict[str, Any] = {
            "subjects": subjects,
            "sample_weight": sample_weight,
            "exposure": exposure,
            "offset": offset,
        }
        fitted = "_snapshot" in vars(self)
        return self.add(X, y, **of_rows) if fitted else self.fit(X, y, **of_rows)

    def predict(
        self,
        X: Any,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Vector:
        """Return the predicted mean, or quantile, of each row, (n,).

        Parameters
        ----------
        X
            The rows.
        exposure, offset
            As at the fit; where left out, an exposure of one, and an offset of zero.
        """
        found = super().predict(X)
        if exposure is None and offset is None:
            return found
        values = read_beside(len(found), exposure=exposure, offset=offset)
        loss = self._fitted_loss()
        if loss.has_identity_link:
            if exposure is not None:
                loss.take_exposure(found, values)  # refuses
            return found + values
        if exposure is not None:
            require_factors("exposure", values)
            return found * values
        return found * loss.take_offsets(found, values)[:, 1]

    def deviance(
        self,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> float:
        """Return the mean deviance of responses from what is predicted.

        Parameters
        ----------
        X, y, sample_weight, exposure, offset
            Rows as ``fit`` takes them.
        """
        return self._deviances(
            X, y, sample_weight=sample_weight, exposure=exposure, offset=offset
        )[0]

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> float:
        """Return D2, the share of the deviance that is explained: 1 is best.

        Zero is what the best constant rate, or constant quantile, would have.

        Parameters
        ----------
        X, y, sample_weight, exposure, offset
            Rows as ``fit`` takes them.
        """
        own, least = self._deviances(
            X, y, sample_weight=sample_weight, exposure=exposure, offset=offset
        )
        return 1.0 - own / least if least else float(own == 0.0)

    def explained(
        self, labels: Vector, weight: Vector | None
    ) -> Callable[[Vector], float]:
        """Return what says D2 of predicted rates, for rows as ``label`` returned them.

        Parameters
        ----------
        labels, weight
            Responses, beside e^offset where there are offsets; and weights.
        """
        given, factor = np.asarray(labels, dtype=np.float64), np.ones(len(labels))
        if given.ndim == 2:
            given, factor = given.T
        weight = check_weights(weight, len(given))
        constant = factor * self._best_constant(given, factor, weight)
        least = self._mean_deviance(given, constant, weight)

        def explain(rate: Vector) -> float:
            own = self._mean_deviance(given, factor * rate, weight)
            return 1.0 - own / least if least else float(own == 0.0)

        return explain

    def find_constant(
        self,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> float:
        """Return the rate, or quantile, that fits responses best without features.

        Parameters
        ----------
        y, sample_weight, exposure, offset
            Responses as ``fit`` takes them.
        """
        given, factor, weight = self._split_labels(
            y, sample_weight=sample_weight, exposure=exposure, offset=offset
        )
        return self._best_constant(given, factor, weight)

    def row_losses(
        self,
        predicted: ArrayLike,
        y: ArrayLike,
        *,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Vector:
        """Return the loss of each response where a rate, or quantile, is predicted.

        Parameters
        ----------
        predicted
            What is predicted for an exposure of one, (n,).
        y, exposure, offset
            Responses as ``fit`` takes them.
        """
        labels, _ = read_responses(
            self._fitted_loss(),
            _one_response(y),
            sample_weight=None,
            exposure=exposure,
            offset=offset,
        )
        eta, loss = np.asarray(predicted, dtype=np.float64), self._fitted_loss()
        given = np.asarray(labels, dtype=np.float64)
        if not loss.has_identity_link:
            eta = np.log(eta)
        return (loss.with_offsets() if given.ndim == 2 else loss).value(given, eta)

    def plot_means(
        self,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        groups: int = 10,
        path: str | Path | None = None,
    ) -> "Figure":
        """Return calibration and lift as a figure; save it at ``path``.

        Rows in the order of their predictions, in groups of equal weight: the mean
        that was predicted beside the one that was seen. And the share of all responses
        that the rows with the smallest predictions have, which a model without lift
        has in proportion. Needs matplotlib: install the extra ``plots``.

        Parameters
        ----------
        X, y, sample_weight, exposure, offset
            Rows as ``fit`` takes them, best of people who were not in the fit.
        groups
            How many groups.
        path
            Where to save the figure.
        """
        weight = check_weights(sample_weight, len(np.asarray(y)))
        seen = np.asarray(_one_response(y), dtype=np.float64).ravel()
        rate, size = self.predict(X), np.ones(len(seen))
        if exposure is not None or offset is not None:
            mean = self.predict(X, exposure, offset)
            size = mean / rate
        order = np.argsort(rate, kind="stable")
        share = np.cumsum((weight * size)[order])
        share /= share[-1]
        group = np.minimum((share * groups).astype(int), groups - 1)
        total = [
            np.bincount(group, (weight * part)[order], minlength=groups)
            for part in (size, size * rate, seen)
        ]
        total = [part[total[0] > 0.0] for part in total]
        figure = make_figure(10.0, 4.4)
        calibration, lift = figure.subplots(1, 2)
        predicted, found = total[1] / total[0], total[2] / total[0]
        ends = [min(predicted.min(), found.min()), max(predicted.max(), found.max())]
        calibration.plot(ends, ends, color="black", ls="--", lw=1.0)
        calibration.plot(predicted, found, color=BLUE, marker="o")
        calibration.set(xlabel="predicted mean", ylabel="mean that was seen")
        calibration.set(title=f"Calibration, {len(found)} groups of equal weight")
        gathered = np.cumsum((weight * seen)[order])
        gathered /= gathered[-1] or 1.0
        lift.plot([0.0, 1.0], [0.0, 1.0], color="black", ls="--", lw=1.0)
        lift.plot(np.append(0.0, share), np.append(0.0, gathered), color=BLUE)
        lift.set(xlabel="rows, smallest predictions first", ylabel="of all responses")
        lift.set(title="Lift: the further below, the more")
        for axis in (lift.xaxis, lift.yaxis):
            show_shares(axis)
        for axes in (calibration, lift):
            axes.grid(alpha=0.25)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _deviances(
        self,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None,
        exposure: ArrayLike | None,
        offset: ArrayLike | None,
    ) -> tuple[float, float]:
        """Return the mean deviance of what is predicted, and of the best constant."""
        given, factor, weight = self._split_labels(
            y, sample_weight=sample_weight, exposure=exposure, offset=offset
        )
        constant = factor * self._best_constant(given, factor, weight)
        return (
            self._mean_deviance(given, factor * self.predict(X), weight),
            self._mean_deviance(given, constant, weight),
        )

    def _split_labels(
        self,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None,
        exposure: ArrayLike | None,
        offset: ArrayLike | None,
    ) -> tuple[Vector, Vector, Vector]:
        """Return responses, what offsets multiply means by, and weights."""
        labels, weight = read_responses(
            self._fitted_loss(),
            _one_response(y),
            sample_weight=sample_weight,
            exposure=exposure,
            offset=offset,
        )
        given, factor = np.asarray(labels, dtype=np.float64), np.ones(len(labels))
        if given.ndim == 2:
            given, factor = given.T
        return given, factor, check_weights(weight, len(given))

    def _best_constant(self, y: Vector, factor: Vector, weight: Vector) -> float:
        """Return the rate, or quantile, that fits best if it is the same everywhere."""
        if not weight.sum() > 0.0:
            raise InvalidInput(
                "the rows to score have no weight; give at least one row whose weight "
                "is positive"
            )
        if self._fitted_loss().has_identity_link:
            return float(np.average(y, weights=weight))
        loss = self._fitted_loss().with_offsets()
        labels = np.column_stack([y, factor])
        rates = (y / factor)[y > 0.0]
        if not len(rates):
            return 0.0

        def pull(eta: float) -> float:
            slopes = loss.slope(labels, np.full(len(y), eta))
            return float(weight @ slopes)

        low, high = float(np.log(rates.min())), float(np.log(rates.max()))
        # Zeros bring the rate below all others, by no more than their weight.
        low += float(np.log(1e-9 + weight[y > 0.0].min() / weight.sum())) - 1.0
        return float(np.exp(brentq(pull, low - 1.0, high + 1.0, xtol=1e-13)))

    def read_beside(
        self,
        X: Any,
        y: Any,
        subjects: Any,
        sample_weight: ArrayLike | None,
        *,
        exposure: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        time: ArrayLike | None = None,
    ) -> tuple[Any, Any, Any, Any]:
        """Return rows like those of the fit as a registry takes them.

        Features, labels, whose rows they are, and weights.
        """
        if time is not None:
            raise InvalidInput("time=...; this model has none: leave it out")
        labels, weight = self._read_more(
            y, sample_weight=sample_weight, exposure=exposure, offset=offset
        )
        return X, labels, subjects, weight

    def _read_more(
        self,
        y: Any,
        *,
        sample_weight: ArrayLike | None,
        exposure: ArrayLike | None,
        offset: ArrayLike | None,
    ) -> tuple[Any, Any]:
        """Return labels and weights of rows like those of the fit."""
        loss, public = private_model(self).objective.loss, snapshot_of(self).public
        if loss.has_offsets != (offset is not None) and not loss.has_identity_link:
            fitted, advice = "without offsets", "leave offset out"
            if loss.has_offsets:
                fitted = "with offsets"
                advice = "pass those of these rows: offset=[...]"
            raise InvalidInput(f"this model was fitted {fitted}; {advice}")
        if public.weighted and exposure is None and sample_weight is None:
            raise InvalidInput(
                "this model was fitted with exposures or weights; pass those of these "
                "rows: exposure=[...] or sample_weight=[...]"
            )
        return read_responses(
            loss,
            _one_response(y),
            sample_weight=sample_weight,
            exposure=exposure,
            offset=offset,
        )

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: some take no negative responses."""
        tags = super().__sklearn_tags__()
        # Of parameters that no loss has nothing is known.
        with suppress(ExpungeError, TypeError, ValueError):
            loss = self.loss_of(self.get_params(deep=False))
            try:
                loss.labels([-1.0])
            except InvalidInput:
                tags.target_tags.positive_only = True
        return tags

    def _learn_labels(
        self, y: Any, weight: Vector | None
    ) -> tuple[Loss, Labels | None]:
        del weight
        self._refuse_classes()
        if self.loss is not None:
            raise InvalidInput(
                f"loss={self.loss!r}; {type(self).__name__} has its own; leave it out, "
                "or use LinearRegression, which takes any"
            )
        loss = self.loss_of(self.get_params(deep=False))
        return loss if np.ndim(y) == 1 else loss.with_offsets(), None


def _one_response(y: Any) -> Any:
    """Return responses, or raise InvalidInput if rows have several."""
    shape = np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        raise InvalidInput(
            f"y has shape {shape}; give one response a row, and offsets as offset=[...]"
        )
    return y


class _DevianceRegressor(GeneralisedRegression):
    """A regression by the deviance of a power of the mean."""

    @abstractmethod
    def _power(self, parameters: Mapping[str, Any]) -> float:
        """Return how the variance grows with the mean."""

    def _mean_deviance(self, y: Vector, mean: Vector, weight: Vector | None) -> float:
        power = self._power(snapshot_of(self).public.parameters)
        if power and not mean.all() and not y[mean == 0.0].any():
            return 0.0  # nothing but zeros was seen, and is predicted
        return float(mean_tweedie_deviance(y, mean, sample_weight=weight, power=power))


class PoissonRegressor(_DevianceRegressor):
    """Regression of counts, or of rates with exposures, that can forget.

    Minimises the mean of half the Poisson deviance + alpha/2 |coefficients|^2, as
    scikit-learn's does; predictions are e^(x.coef + intercept). Leave out ``loss``.
    """

    def loss_of(self, parameters: Mapping[str, Any]) -> Loss:
        """Return the loss that parameters name."""
        return Poisson()

    def _power(self, parameters: Mapping[str, Any]) -> float:
        return 1.0

    def to_sklearn(self) -> Any:
        """Return PoissonRegressor."""
        return _with_link(make_plain(linear_model.PoissonRegressor(), self))


class GammaRegressor(_DevianceRegressor):
    """Regression of positive amounts that can forget.

    Minimises the mean of half the Gamma deviance + alpha/2 |coefficients|^2, as
    scikit-learn's does; predictions are e^(x.coef + intercept). Leave out ``loss``.
    """

    def loss_of(self, parameters: Mapping[str, Any]) -> Loss:
        """Return the loss that parameters name."""
        return Gamma()

    def _power(self, parameters: Mapping[str, Any]) -> float:
        return 2.0

    def to_sklearn(self) -> Any:
        """Return GammaRegressor."""
        return _with_link(make_plain(linear_model.GammaRegressor(), self))


class TweedieRegressor(_DevianceRegressor):
    """Regression of amounts, many of them zero, that can forget.

    Minimises the mean of half the Tweedie deviance of a ``power`` + alpha/2
    |coefficients|^2, as scikit-learn's does. The power is 0, or lies from 1 to 2:
    for others the loss is not convex. Leave out ``loss``.
    """

    __init__ = init_with(power=0.0, link="auto")

    def loss_of(self, parameters: Mapping[str, Any]) -> Loss:
        """Return the loss that parameters name."""
        power, link = parameters["power"], parameters["link"]
        if link not in ("auto", "log"):
            raise Unsupported(f"link={link!r}; it must be 'auto' or 'log'")
        if power == 0.0 and link == "auto":
            return HalfSquared()
        if not 1.0 <= power <= 2.0:
            raise Unsupported(
                f"power={power} with link={link!r}: the loss is not convex, and "
                "removal needs that; give a power from 1 to 2, or power=0 with "
                "link='auto'"
            )
        return {1.0: Poisson(), 2.0: Gamma()}.get(power) or Tweedie(float(power))

    def _power(self, parameters: Mapping[str, Any]) -> float:
        return float(parameters["power"])

    def to_sklearn(self) -> Any:
        """Return TweedieRegressor."""
        power = self._power(snapshot_of(self).public.parameters)
        plain = linear_model.TweedieRegressor(power=power)
        return _with_link(make_plain(plain, self))


class NegativeBinomialRegressor(GeneralisedRegression):
    """Regression of counts that vary more than Poisson's, that can forget.

    Minimises the mean of half the deviance of a negative binomial of a declared
    ``dispersion`` + alpha/2 |coefficients|^2; predictions are e^(x.coef + intercept).
    Rows have offsets and no exposures. Where the ``largest`` count is declared, all
    radii are finite, and without rows it can be planned for. Leave out ``loss``.
    """

    __init__ = init_with(dispersion=1.0, largest=None)

    def loss_of(self, parameters: Mapping[str, Any]) -> Loss:
        """Return the loss that parameters name."""
        largest = parameters.get("largest")  # models of old have none
        return NegativeBinomial(
            float(parameters["dispersion"]),
            largest=None if largest is None else float(largest),
        )

    def _mean_deviance(self, y: Vector, mean: Vector, weight: Vector | None) -> float:
        loss, positive = self._fitted_loss(), y > 0.0
        with np.errstate(divide="ignore"):
            eta, best = np.log(mean), np.log(np.where(positive, y, 1.0))
        least = np.where(positive, loss.value(y, best), 0.0)  # zero counts tend to it
        eta = np.where(mean > 0.0, eta, -np.inf)
        return float(np.average(2.0 * (loss.value(y, eta) - least), weights=weight))

    def to_sklearn(self) -> Any:
        """Return PoissonRegressor, whose predictions are the same function."""
        return _with_link(make_plain(linear_model.PoissonRegressor(), self))


class QuantileRegressor(GeneralisedRegression):
    """Regression of a quantile that can forget.

    Minimises the mean of the pinball loss, smoothed over a ``width``, + alpha/2
    |coefficients|^2. With ``l1_ratio=1`` the penalty is that of scikit-learn's, which
    does not smooth. Leave out ``loss``.
    """

    __init__ = init_with(quantile=0.5, width=1.0)

    def loss_of(self, parameters: Mapping[str, Any]) -> Loss:
        """Return the loss that parameters name."""
        return Pinball(float(parameters["quantile"]), float(parameters["width"]))

    def plot_means(self, X: Any, y: ArrayLike, **given: Any) -> NoReturn:
        """Refuse to draw: a quantile is no mean."""
        raise Unsupported("what is predicted is a quantile; plot_means is for means")

    def _quantile(self) -> float:
        return float(snapshot_of(self).public.parameters["quantile"])

    def _mean_deviance(self, y: Vector, mean: Vector, weight: Vector | None) -> float:
        alpha = self._quantile()
        return float(mean_pinball_loss(y, mean, sample_weight=weight, alpha=alpha))

    def _best_constant(self, y: Vector, factor: Vector, weight: Vector) -> float:
        found = np.quantile(y, self._quantile(), weights=weight, method="inverted_cdf")
        return float(found)

    def to_sklearn(self) -> Any:
        """Return QuantileRegressor."""
        quantile = self._quantile()
        return make_plain(linear_model.QuantileRegressor(quantile=quantile), self)


def _with_link(plain: Any) -> Any:
    """Return an estimator, or a pipeline of one, that knows its inverse link."""
    last = plain[-1] if isinstance(plain, Pipeline) else plain
    last._base_loss = last._get_loss()
    return plain
