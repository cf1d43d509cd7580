# SPDX-License-Identifier: Apache-2.0
"""Estimators from and to what they are made of, for the rest of the package.

Other packages never reach into an estimator. They prepare rows with it, fit it again to
other rows, make one from a snapshot or a file, or turn its release into a plain
scikit-learn estimator. A plain one has only what predictions need: coefficients,
intercepts, classes and feature names. Its hyper-parameters keep scikit-learn's
defaults, because the one that matters (C = 1/(alpha W)) would tell how much weight is
left.
"""

from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn import linear_model
from sklearn.base import clone
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import LabelBinarizer
from sklearn.svm import LinearSVC

from ..core.arrays import Index, Matrix, Vector, write_lock
from ..files import CorruptFiles, export, read_snapshot
from ..files.export import SHIP_AGAIN
from ..private_model.model import PrivateModel, require_release
from ..private_model.snapshot import PublicModel, Snapshot, require_weights
from ..private_model.subjects import owners_of
from ..private_model.training_rows import RowDigests, TrainingRows
from ..promise.certificate import Scope
from .base import (
    Forgetful,
    fit_prepared,
    public_model,
    require_known,
    set_snapshot,
    snapshot_of,
)
from .parameters import Prepared, describe_features


def load(path: str | PathLike[str]) -> Any:
    """Return the model that was saved in a folder.

    With the private files it continues where it was: same predictions, same removals,
    same account of releases. With the release alone it predicts, and ``forget`` raises
    NoPrivateState. Raises NothingSaved if there is no such folder, and CorruptFiles if
    anything was altered.

    Parameters
    ----------
    path
        The folder.
    """
    return _make(read_snapshot(path))


def ship(model: Forgetful, path: str | PathLike[str]) -> None:
    """Write the release of a fitted model into one file, in the format of its suffix.

    An existing file is replaced at once or, if anything fails, stays as it was. A new
    file is readable by its owner alone; a replaced one keeps its mode.

    Parameters
    ----------
    model
        A fitted estimator; a copy that has only the release will do.
    path
        Must end in .safetensors or .onnx; its folder must exist.
    """
    require_known(model)
    with write_lock(model):
        export.ship(snapshot_of(model).public, path)


def read_shipped(path: str | PathLike[str]) -> Any:
    """Return the model in a shipped .safetensors file.

    It predicts and has its certificate; ``forget`` raises NoPrivateState. Raises
    NothingSaved if there is no such file, and CorruptFiles if a byte was altered.

    Parameters
    ----------
    path
        The file. Files that end in .onnx are for an ONNX runtime.
    """
    return make_estimator(export.read_shipped(path))


def make_estimator(public: PublicModel) -> Any:
    """Return an estimator that has a release and no private state."""
    return _make(Snapshot(public))


def estimator_of(snapshot: Snapshot) -> Any:
    """Return an estimator that is the model of a snapshot."""
    public, private = snapshot.public, snapshot.private
    model: Any = Forgetful.by_name[public.estimator](**public.parameters)
    model.n_features_in_ = public.n_features
    if public.feature_names is not None:
        model.feature_names_in_ = public.feature_names
    if public.classes is None:
        model._n_targets = public.n_targets
    if private is not None:
        model.random_state = private.seed
    model._snapshot = snapshot
    return model


def prepare(
    estimator: Forgetful, X: Any, y: Any, *, sample_weight: ArrayLike | None = None
) -> Prepared:
    """Let an estimator learn features and labels; return the rows to fit."""
    return estimator._prepare(X, y, sample_weight)


def take_rows(data: Any, rows: Index) -> Any:
    """Return some rows of a table, a matrix or a list, as the kind of thing it is."""
    if hasattr(data, "iloc"):  # pandas
        return data.iloc[rows]
    if hasattr(data, "to_pylist"):  # pyarrow
        return data.take(rows)
    if hasattr(data, "tocsr"):  # scipy
        return data.tocsr()[rows]
    if hasattr(data, "columns"):  # polars
        return data[rows]
    return np.asarray(data)[rows]


def fit_copy(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    subjects: Iterable[object] | None,
    sample_weight: ArrayLike | None,
    scope: Scope,
) -> Snapshot:
    """Fit a copy of an estimator, which stays as it is; return the snapshot."""
    require_known(estimator)
    before = public_model(estimator)
    require_weights(before, sample_weight)
    fresh = clone(estimator)
    prepared = prepare(fresh, X, y, sample_weight=sample_weight)
    prepared = prepared.with_pair(None if before is None else before.pair)
    owners = owners_of(subjects, len(prepared.rows))
    prepared = replace(prepared, owners=owners)
    fit_prepared(fresh, prepared, scope=scope, before=before)
    return snapshot_of(fresh)


def refit_on(
    estimator: Forgetful, left: Any, *, private: PrivateModel, n_subjects: int
) -> PrivateModel:
    """Return a private model fitted to the rows that are left, with other columns.

    The target is that of every removal: the same alpha under "mean" scaling, the same
    alpha W as at the first fit under "sum", and the classes that are left.

    Parameters
    ----------
    estimator
        Learns the features again.
    left
        X, y, weight and owners of the remaining rows, transformed.
    private
        The model before.
    n_subjects
        How many people were removed.
    """
    require_release(private)
    X, y = estimator._validate(left.X, left.y)
    labels, objective = private.labels, private.objective
    if labels is not None:
        labels, loss = labels.learn_again(y, left.weight, objective.loss)
        objective = replace(objective, loss=loss)
        labels.require_minimiser(objective)
    rows = objective.rows(X, estimator._code_labels(y, labels), left.weight)
    start: Vector | None = private.answer.draft.theta
    if start is not None and start.size != rows.X.shape[1] * objective.loss.outputs:
        start = None
    assert private.digests is not None
    after = private.refit(objective, rows, n_subjects=n_subjects, start=start)
    return replace(
        after,
        digests=RowDigests.of(rows, private.digests.key),
        training_rows=TrainingRows(rows, left.owners),
        labels=labels,
    )


def release_snapshot(
    estimator: Forgetful, before: Snapshot, *, after: PrivateModel
) -> None:
    """Release a private model, and make it the model of an estimator."""
    snapshot = before.release(after)
    public = replace(snapshot.public, **describe_features(estimator))
    set_snapshot(estimator, replace(snapshot, public=public))


def make_linear(model: Any) -> Any:
    """Return linear regression."""
    return _fill(linear_model.LinearRegression(), model)


def make_logistic(model: Any) -> Any:
    """Return the linear classifier whose loss is the model's."""
    if len(model.classes_) > 2:
        return _make_one_vs_rest(model)
    logistic = model.certificate_.objective["loss"]["name"] == "Logistic"
    # LinearSVC is a linear classifier without probabilities, which no other loss has.
    plain = linear_model.LogisticRegression() if logistic else LinearSVC()
    return _fill(plain, model)


def make_softmax(model: Any) -> Any:
    """Return softmax regression; for two classes one row of differences."""
    plain = _fill(linear_model.LogisticRegression(), model)
    if len(plain.coef_) == 2:
        plain.coef_ = plain.coef_[1:] - plain.coef_[:1]
        plain.intercept_ = plain.intercept_[1:] - plain.intercept_[:1]
    return plain


def _make(snapshot: Snapshot) -> Any:
    """Return the estimator of a snapshot read from a file."""
    try:
        return estimator_of(snapshot)
    except (LookupError, TypeError, ValueError) as error:
        raise CorruptFiles(
            f"the file does not contain a model; {SHIP_AGAIN}"
        ) from error


def _make_one_vs_rest(model: Any) -> Any:
    """Return binary models side by side."""
    plain = OneVsRestClassifier(linear_model.LogisticRegression())
    plain.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(model.classes_)
    plain.estimators_ = [
        _set_coefficients(
            _make_binary(model), coef[None, :], intercept=np.array([intercept])
        )
        for coef, intercept in zip(model.coef_, model.intercept_, strict=True)
    ]
    if not hasattr(plain, "classes_"):  # a property until scikit-learn 1.8
        plain.classes_ = model.classes_.copy()
    return _describe(plain, model)


def _make_binary(model: Any) -> Any:
    """Return a classifier of 0 and 1 that knows the features."""
    plain = _describe(linear_model.LogisticRegression(), model)
    plain.classes_ = np.array([0, 1])
    return plain


def _fill(plain: Any, model: Any) -> Any:
    """Return the estimator with the model's release in it."""
    if hasattr(model, "classes_"):
        plain.classes_ = model.classes_.copy()
    filled = _set_coefficients(plain, model.coef_, intercept=model.intercept_)
    return _describe(filled, model)


def _set_coefficients(plain: Any, coef: Matrix, *, intercept: Vector) -> Any:
    """Return the estimator with coefficients of its own."""
    plain.coef_ = np.array(coef)
    plain.intercept_ = np.array(intercept) if np.ndim(intercept) else float(intercept)
    plain.n_iter_ = np.zeros(1, dtype=np.int32)
    return plain


def _describe(plain: Any, model: Any) -> Any:
    """Return the estimator with the features it expects."""
    plain.n_features_in_ = model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        plain.feature_names_in_ = model.feature_names_in_.copy()
    return plain
