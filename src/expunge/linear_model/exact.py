# SPDX-License-Identifier: Apache-2.0
"""What estimators share whose models follow from exact sums: fit, add, and a check.

A fit reads rows, adds them up as integers, and publishes what its ``Formula`` makes of
the sums. There is no budget, because there is no noise: the release equals that of a
fit to the rows that are left, to the last bit, and hides nothing.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..core.arrays import Matrix, write_lock
from ..core.objective import check_weights
from ..core.rows import Rows
from ..core.values import replace_fields
from ..core.whole_sums import whole_numbers
from ..exceptions import InvalidInput
from ..private_model.exact import ExactModel, Formula
from ..private_model.labels import Labels, learn_labels
from ..private_model.row_digests import RowDigests
from ..private_model.snapshot import (
    PublicModel,
    Snapshot,
    carry_over,
    replace_places,
)
from ..private_model.subjects import is_row_name, owners_of
from ..private_model.training_rows import NO_ROWS, TrainingRows
from ..promise.noise import SECRET_BYTES, random_bytes
from ..promise.scope import Scope
from ..promise.verification import Verdict, verify
from .forgetting import (
    Forgetting,
    finish_request,
    people_model,
    public_model,
    read_owners,
    set_snapshot,
    snapshot_of,
)


class ExactEstimator(Forgetting):
    """An estimator that forgets to the last bit."""

    _public_kind: ClassVar[type[PublicModel]] = PublicModel
    keep_data: bool
    decimals: int | None
    _n_targets: int | None = None

    @abstractmethod
    def _formula(self) -> Formula:
        """Return what the parameters compute, once they are checked."""

    @abstractmethod
    def _read(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any, Labels | None]:
        """Return checked features and targets, and classes learnt of them."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model and make its first release.

        Parameters
        ----------
        X, y
            Features, dense or sparse, and labels or targets.
        subjects
            The owner of each row. Without it nobody in the model has an id, and you
            forget rows by their position or their content.
        sample_weight
            Weights: whole numbers, which count rows.
        """
        with write_lock(self):
            fresh = copy(self)  # a fit that fails changes nothing
            of_rows: dict[str, Any] = {
                "subjects": subjects,
                "sample_weight": sample_weight,
            }
            fresh._snapshot = fresh._fit_snapshot(
                X, y, scope=Scope(), before=public_model(self), **of_rows
            )
            self.__dict__ = vars(fresh) | {"_lock": write_lock(self)}
        return self

    def _fit_snapshot(
        self,
        X: Any,
        y: Any,
        *,
        scope: Scope,
        before: PublicModel | None,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        engine: Any = None,
    ) -> Snapshot:
        if engine is not None:
            raise InvalidInput("exact sums are added up in this process; omit engine")
        formula = self._formula()
        features, targets, labels = self._read(X, y, reset=True)
        rows = self._rows(features, targets, labels, sample_weight=sample_weight)
        return self._fit_rows(
            formula,
            rows,
            labels=labels,
            owners=owners_of(subjects, len(rows)),
            scope=scope,
            before=before,
            weighted=sample_weight is not None,
        )

    def _fit_rows(
        self,
        formula: Formula,
        rows: Rows,
        *,
        labels: Labels | None,
        owners: Sequence[str],
        scope: Scope,
        before: PublicModel | None,
        weighted: bool = False,
    ) -> Snapshot:
        """Return the model of these rows, and its first release."""
        keeps = bool(self.keep_data)
        scope = replace(scope, rows_kept=scope.rows_kept and keeps)
        scope = replace(scope, classes="none" if labels is None else labels.stated)
        scope = carry_over(scope, before, budget=None)
        model = ExactModel.fit(formula, rows, labels=labels).with_scope(scope)
        if keeps:
            # In memory that is not the caller's: it will be overwritten.
            own = Rows(rows.X.copy(), rows.y.copy(), rows.weight.copy())
            model = replace(model, training_rows=TrainingRows(own, owners))
        else:
            named = None if is_row_name(owners[0]) else owners
            key = random_bytes(SECRET_BYTES)
            model = replace(model, digests=RowDigests.of(rows, key, owners=named))
        model, release, record = model.release()
        parameters = deepcopy(self.get_params(deep=False))
        if parameters.get("classes") is not None:
            parameters["classes"] = list(parameters["classes"])
        shown: dict[str, Any] = {
            "n_features": self.n_features_in_,
            "feature_names": getattr(self, "feature_names_in_", None),
        }
        public = self._public_kind(
            release=release,
            estimator=type(self).__name__,
            parameters=parameters,
            n_targets=self._n_targets,
            weighted=weighted,
            **shown | model.public_parts,
        )
        return Snapshot(public, model, record)

    def _rows(
        self,
        X: Any,
        y: Any,
        labels: Labels | None,
        *,
        sample_weight: ArrayLike | None,
    ) -> Rows:
        """Return checked features and targets as rows that are kept."""
        weight = whole_numbers(
            check_weights(sample_weight, X.shape[0]), None, name="sample_weight"
        )
        coded = y if labels is None else labels.encode(y)
        return Rows(X, np.asarray(coded, dtype=np.float64), np.asarray(weight))

    def _read_removed(
        self, before: Snapshot, X: Any, y: Any, *, sample_weight: ArrayLike | None
    ) -> Rows:
        features, targets, _ = self._read(X, y, reset=False)
        labels = _exact(before).labels
        return self._rows(features, targets, labels, sample_weight=sample_weight)

    def _read_added(
        self, before: Snapshot, X: Any, y: Any, *, sample_weight: ArrayLike | None
    ) -> Rows:
        weighted = before.public.weighted
        if weighted != (sample_weight is not None):
            mend = "pass those of the new rows" if weighted else "leave it out"
            raise InvalidInput(
                f"this model was fitted {'with' if weighted else 'without'} "
                f"sample_weight; {mend}; nothing was added"
            )
        labels = _exact(before).labels
        if labels is not None and y is not None:
            labels.require_known(np.asarray(y))
        return self._read_removed(before, X, y, sample_weight=sample_weight)

    def add(
        self,
        X: Any,
        y: Any = None,
        *,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows to the fitted model and make a new release. All or nothing.

        A class that the model does not have comes with its first row, unless classes
        are declared.

        Parameters
        ----------
        X, y
            The new rows, as ``fit`` takes them.
        subjects, sample_weight
            Whose they are, and their weights, if the model was fitted with these.
        """
        with write_lock(self):
            finish_request(self)
            before = self._snapshot
            private = _exact(before)
            if private.labels is not None and y is not None:
                grown = private.labels.with_classes_of(np.asarray(y))
                private = replace_fields(private, labels=grown)
            room = before.keep(private)
            added = self._read_added(room, X, y, sample_weight=sample_weight)
            owners = read_owners(private, subjects, n_rows=len(added))
            after = replace_places(private, NO_ROWS, added=added, owners=owners)
            set_snapshot(self, before.release(after))
        return self

    def check_release(self) -> Verdict:
        """Return whether the last release is what the rows that are left give.

        Everything is computed again: the sums from the rows that the model keeps, what
        is published from the sums, and whether certificate and record fit.
        """
        with write_lock(self):
            finish_request(self)
            return recheck(self._snapshot)


class ExactClassifier(ClassifierMixin, ExactEstimator):
    """Classes of any type, by exact sums over the rows of each."""

    classes: Sequence[Any] | None

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of the last release, sorted."""
        return np.asarray(self._public.classes)

    def _read(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any, Labels | None]:
        if y is None:
            raise InvalidInput(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None"
            )
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, reset=reset
        )
        check_classification_targets(y)
        return X, y, learn_labels(y, None, self.classes, pair=None) if reset else None

    def _check(self, X: Any) -> Any:
        """Return rows to predict, checked."""
        return validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, reset=False
        )

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Sequence[Any] | None = None,
        sample_weight: ArrayLike | None = None,
        subjects: Iterable[object] | None = None,
    ) -> Self:
        """Fit the model to the first rows, and ``add`` those of later calls.

        Parameters
        ----------
        X, y
            The rows.
        classes
            All classes that will come; the first call declares them.
        sample_weight, subjects
            Their weights, and whose they are, as ``fit`` takes them.
        """
        of_rows: dict[str, Any] = {"subjects": subjects, "sample_weight": sample_weight}
        with write_lock(self):
            if public_model(self) is not None:
                known = self._public.parameters["classes"]
                if classes is not None and (known is None or {*classes} != {*known}):
                    raise InvalidInput(
                        f"classes={classes!r}, which the first call did not declare; "
                        "leave classes out, or fit again; nothing was added"
                    )
                return self.add(X, y, **of_rows)
            fresh = copy(self)
            fresh.classes = self.classes if classes is None else classes
            fresh.fit(X, y, **of_rows)
            fresh.classes = self.classes
            self.__dict__ = vars(fresh) | {"_lock": write_lock(self)}
            return self

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: sparse input is allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def scores(model: ExactClassifier, X: Any) -> Matrix:
    """Return X coef' + intercept, both of one release, (n, k)."""
    coef, intercept = model._public.coefficients
    found: Matrix = np.asarray(model._check(X) @ coef.T) + intercept
    return found


def recheck(snapshot: Snapshot) -> Verdict:
    """Return whether a release is what the rows that are left give, see above."""
    private, release = _exact(snapshot), snapshot.public.release
    assert snapshot.record is not None
    verdict = verify(release.certificate, snapshot.record)
    fresh = private.rebuilt()
    checks = (
        (
            "the sums are those of the rows that are left",
            fresh.sums.equals(private.sums),
        ),
        (
            "the published numbers follow from these sums, to the last bit",
            np.array_equal(fresh.published(), release.theta),
        ),
    )
    findings = tuple(text for text, holds in checks if holds)
    failures = tuple(f"not so: {text}" for text, holds in checks if not holds)
    says = (
        f"{verdict.says} All of it was computed again from the rows that are kept: the "
        "published numbers are what they give."
    )
    if failures:
        says = f"The release is not valid: {'; '.join(failures)}."
    return Verdict(verdict.findings + findings, verdict.failures + failures, says)


def _exact(snapshot: Snapshot) -> ExactModel:
    private = snapshot.private
    assert isinstance(private, ExactModel)
    return private


def exact_model(estimator: Any) -> ExactModel:
    """Return a fitted estimator's private model, or raise NoPrivateState."""
    people_model(estimator)
    return _exact(snapshot_of(estimator))
