# SPDX-License-Identifier: Apache-2.0
r"""Survival by hazards that are constant between given times.

Somebody who is seen until a time, when an event happens or not, is a row for each
interval that they reach: the time that they spent in it, and whether the event happened
there. With the hazard e^(x.coef + level of the interval), the likelihood of these rows
is that of Poisson counts with the times as exposures (Holford, *The analysis of rates
and of survivorship using log-linear models*, Biometrics 36, 1980; Laird and Olivier,
*Covariance analysis of censored survival data using log-linear analysis techniques*,
Journal of the American Statistical Association 76, 1981). No list of the times at which
events happened is published, as the baseline of a Cox model would be.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_array

from ..core.arrays import Index, Matrix, Vector
from ..core.objective import check_weights
from ..core.values import LARGEST, SMALLEST
from ..display.plots import make_figure, show_shares
from ..exceptions import InvalidInput, Unsupported
from ..preprocessing.columns import as_frame, take_rows
from ..preprocessing.description import Group
from ..preprocessing.encoder import title_of
from ..preprocessing.mapped import split_encoder
from ..preprocessing.sklearn_steps import describe
from .base import init_with, snapshot_of
from .generalised import PoissonRegressor
from .parameters import require_parameters

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PiecewiseExponential(PoissonRegressor):
    """Survival by hazards that are constant between ``breaks``, that can forget.

    The hazard of a row is e^(x.coef + level), with a level for each interval between
    breaks. Minimises the mean over people and the intervals they reached of the
    negative log likelihood + alpha/2 |coefficients|^2; the penalty draws the levels
    together. ``y`` is (n, 2): the time until which each person was seen, and 1 if the
    event happened then, or 0. A person may have several rows. Leave out ``loss``.
    """

    __init__ = init_with(breaks=())

    def spread(
        self,
        X: Any,
        y: Any,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> tuple[Any, Matrix, list[object] | None, Vector | None]:
        """Return a row for each person and interval, as a registry takes them.

        Features with a column for each interval; (n, 2) labels, events beside the time
        spent there; whose rows they are, and their weights.

        Parameters
        ----------
        X, y, subjects, sample_weight
            As ``fit`` takes them.
        """
        require_parameters(self.get_params(deep=False))
        times, events = _read_times(y)
        edges = self._edges()
        n_rows = len(X) if as_frame(X) is None else as_frame(X).shape[0]
        if n_rows != len(times):
            raise InvalidInput(
                f"X has {n_rows} rows and y has {len(times)}; give a time and an event "
                "for each row"
            )
        owners = None if subjects is None else list(subjects)
        if owners is not None and len(owners) != n_rows:
            raise InvalidInput(
                f"subjects has {len(owners)} ids and X has {n_rows} rows; give one for "
                "each row"
            )
        places, intervals = np.nonzero(times[:, None] > edges[:-1])
        start, end = edges[intervals], edges[intervals + 1]
        spent = np.minimum(times[places], end) - start
        last = times[places] <= end
        labels = np.column_stack([events[places] * last, spent])
        weight = None
        if sample_weight is not None:
            weight = check_weights(sample_weight, n_rows)[places]
        if owners is not None:
            owners = [owners[place] for place in places.tolist()]
        return self._rows(X, places, intervals), labels, owners, weight

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
        X
            Features, a row for each person: numbers, dense, or a data frame.
        y
            (n, 2): the time until which somebody was seen, and whether the event
            happened then.
        subjects, sample_weight, engine
            As for every estimator.
        exposure, offset
            Leave them out: times are the exposures.
        """
        _refuse_exposure(exposure, offset)
        # By the breaks of the parameters, not of an earlier fit.
        rows = clone(self).spread(X, y, subjects, sample_weight)
        X, labels, owners, weight = rows
        responses, spent = labels.T
        return super().fit(X, responses, owners, weight, engine, offset=np.log(spent))

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
        """Remove people, and make a new release. All or nothing.

        Parameters
        ----------
        subjects
            Whom to forget, with all intervals of theirs.
        rows
            Leave it out: the rows of the model are intervals of people.
        X, y, sample_weight
            The rows to forget, exactly as they were fitted.
        exposure, offset
            Leave them out.
        """
        _refuse_exposure(exposure, offset)
        if rows is not None:
            raise InvalidInput(
                "rows=...: the rows of this model are intervals of people; say whom to "
                "forget by subjects=[...], or by X=... with y=..."
            )
        if X is None or y is None:
            return super().forget(subjects, X=X, y=y, sample_weight=sample_weight)
        X, labels, _, weight = self.spread(X, y, sample_weight=sample_weight)
        responses, spent = labels.T
        return super().forget(
            subjects,
            X=X,
            y=responses,
            sample_weight=weight,
            offset=np.log(spent),
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
        """Add people to the fitted model and make a new release. All or nothing.

        Parameters
        ----------
        X, y, subjects, sample_weight
            The new rows, as ``fit`` takes them.
        exposure, offset
            Leave them out.
        """
        _refuse_exposure(exposure, offset)
        X, labels, owners, weight = self.spread(X, y, subjects, sample_weight)
        responses, spent = labels.T
        return super().add(
            X,
            responses,
            subjects=owners,
            sample_weight=weight,
            offset=np.log(spent),
        )

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
        _refuse_exposure(exposure, offset)
        if time is None or np.shape(time) != np.shape(y):
            raise InvalidInput("give a time for each event: time=[...]")
        return self.spread(X, np.column_stack([time, y]), subjects, sample_weight)

    def predict_hazard(self, X: Any) -> Matrix:
        """Return the hazard of each row in each interval, (n, intervals).

        Parameters
        ----------
        X
            The rows, as ``fit`` takes them.
        """
        frame = as_frame(X)
        n_rows, k = len(X) if frame is None else frame.shape[0], len(self._edges()) - 1
        places, intervals = np.divmod(np.arange(n_rows * k), k)
        hazard = super().predict(self._rows(X, places, intervals))
        return np.asarray(hazard).reshape(n_rows, k)

    def predict_survival(self, X: Any, times: ArrayLike) -> Matrix:
        """Return the probability of no event until each time, (n, times).

        Parameters
        ----------
        X
            The rows, as ``fit`` takes them.
        times
            Times from zero.
        """
        try:
            at = np.asarray(times, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError, OverflowError):
            at = np.array([np.nan])
        if not (np.isfinite(at).all() and (at >= 0.0).all()):
            raise InvalidInput("times must be numbers from zero; correct them")
        edges = self._edges()
        spent = np.clip(at[:, None], edges[:-1], edges[1:]) - edges[:-1]
        survival: Matrix = np.exp(-self.predict_hazard(X) @ spent.T)
        return survival

    def predict(
        self, X: Any, exposure: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> Vector:
        """Return the hazard of each row in the first interval, (n,).

        The larger it is, the sooner the event is expected, in every interval.

        Parameters
        ----------
        X
            The rows, as ``fit`` takes them.
        exposure, offset
            Leave them out.
        """
        _refuse_exposure(exposure, offset)
        return np.asarray(self.predict_hazard(X)[:, 0])

    def plot_survival(
        self,
        X: Any,
        times: ArrayLike,
        *,
        labels: Sequence[str] | None = None,
        path: str | Path | None = None,
    ) -> "Figure":
        """Return the survival curves of rows as a figure; save it at ``path``.

        Needs matplotlib: install the extra ``plots``.

        Parameters
        ----------
        X, times
            As ``predict_survival`` takes them.
        labels
            What to call each row.
        path
            Where to save the figure.
        """
        figure = make_figure(6.4, 4.4)
        axes, curves = figure.subplots(), self.predict_survival(X, times)
        for place, curve in enumerate(curves):
            axes.plot(times, curve, label=None if labels is None else labels[place])
        axes.set(xlabel="time", ylabel="no event so far", ylim=(0.0, None))
        show_shares(axes.yaxis)
        axes.grid(alpha=0.25)
        if labels is not None:
            axes.legend(edgecolor="none")
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
        _refuse_exposure(exposure, offset)
        X, labels, _, weight = self.spread(X, y, sample_weight=sample_weight)
        responses, spent = labels.T
        weight = check_weights(weight, len(spent))
        rate = self._best_constant(responses, spent, weight)
        mean = spent * super().predict(X)
        return (
            self._mean_deviance(responses, mean, weight),
            self._mean_deviance(responses, spent * rate, weight),
        )

    def _choose_steps(self, X: Any) -> Any:
        """Return the preprocessing of people, with the intervals beside as they are.

        A transformer is about the columns that people have: it must neither drop the
        intervals nor make something else of them.
        """
        given = self.preprocessing
        n_levels = len(self.breaks) + 1 if len(self.breaks) else 0
        if given is None or not n_levels:
            return given
        steps, last = split_encoder(given)
        if steps is not None and last is not None:
            raise Unsupported(
                f"{title_of(last)} after a step that learns would take the intervals "
                "too; put it before the steps that learn"
            )
        frame = as_frame(X)
        if frame is None:
            own, levels = X[:, :-n_levels], range(X.shape[1])[-n_levels:]
        else:
            own = frame[:, :-n_levels].to_native()
            levels = frame.columns[-n_levels:]
        described = describe(given, own, rows_kept=bool(self.keep_data))
        used = {name for group in described.groups for name in group.columns}
        beside = tuple(name for name in levels if name not in used)
        if not beside:
            return described
        return replace(described, groups=(*described.groups, Group(beside)))

    def _edges(self) -> Vector:
        """Return zero, the breaks and infinity."""
        fitted = "_snapshot" in vars(self)
        given = snapshot_of(self).public.parameters["breaks"] if fitted else self.breaks
        try:
            edges = np.array([0.0, *map(float, given), np.inf])
        except (TypeError, ValueError, OverflowError):
            edges = np.array([np.nan])
        if (
            np.isnan(edges).any()
            or not (np.diff(edges) > 0.0).all()
            or (edges[1:-1] > LARGEST).any()
        ):
            raise InvalidInput(
                f"breaks={given!r}; give positive times in ascending order"
            )
        return edges

    def _rows(self, X: Any, places: Index, intervals: Index) -> Any:
        """Return rows of people, beside columns that say in which interval they are."""
        edges, frame = self._edges(), as_frame(X)
        k = len(edges) - 1
        levels = np.eye(k)[intervals] if k > 1 else np.empty((len(places), 0))
        if "_snapshot" in vars(self):
            n_columns = np.shape(X)[1] if frame is None else len(frame.columns)
            n_levels = k if k > 1 else 0
            if n_columns != self.n_features_in_ - n_levels:
                raise InvalidInput(
                    f"X has {n_columns} columns, and the fit had "
                    f"{self.n_features_in_ - n_levels}; give the same ones"
                )
        if frame is None:
            # Gaps are filled, or refused, where rows are read; so are words.
            words = np.asarray(X).dtype == object
            kind = object if words else np.float64
            cells = check_array(X, dtype=kind, ensure_all_finite=False)
            return np.hstack([cells[places], levels])
        import narwhals as nw

        names = [f"from {low:g} to {high:g}" for low, high in pairwise(edges)]
        rows = nw.from_native(take_rows(X, places), eager_only=True)
        added = [
            nw.new_series(name, column, nw.Float64, backend=rows.implementation)
            for name, column in zip(names, levels.T, strict=False)
        ]
        return nw.to_native(rows.with_columns(*added) if added else rows)


def _read_times(y: Any) -> tuple[Vector, Vector]:
    """Return until when people were seen, and whether the event happened then."""
    if y is None:
        raise InvalidInput("X without y; pass times and events as y, of shape (n, 2)")
    try:
        numbers = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(
            "times and events must be numbers, (n, 2): give np.column_stack([time, "
            f"event]), an event 1 if it happened at that time, or 0 ({error})"
        ) from error
    if numbers.ndim != 2 or numbers.shape[1] != 2:
        raise InvalidInput(
            f"y has shape {numbers.shape}; give (n, 2): a time and an event, 1 or 0, "
            "for each row"
        )
    if not np.isfinite(numbers).all():
        raise InvalidInput(
            "times or events hold NaN or infinity; leave these rows out: of somebody "
            "who is still there, give the time until now and the event 0"
        )
    times, events = numbers.T
    early = times[(times < SMALLEST) | (times > LARGEST)]
    if len(early):
        raise InvalidInput(
            f"a time of {early[0]:g}; times count from when somebody is first seen and "
            "must be positive: correct it, or leave its row out"
        )
    other = events[(events != 0.0) & (events != 1.0)]
    if len(other):
        raise InvalidInput(
            f"an event of {other[0]:g}; give 1 if it happened at that time, or 0"
        )
    return times, events


def _refuse_exposure(exposure: object, offset: object) -> None:
    if exposure is not None or offset is not None:
        raise InvalidInput(
            "exposure or offset; the times in y are the exposures: leave it out"
        )
