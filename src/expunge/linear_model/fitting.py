# SPDX-License-Identifier: Apache-2.0
"""Estimators from and to what they are made of, for the rest of the package.

Other packages never reach into an estimator. They prepare rows with it, fit it again to
other rows, make one from a snapshot or a file, or turn its release into a plain
scikit-learn estimator. A plain one has only what predictions need: coefficients,
intercepts, classes and feature names. Its hyper-parameters keep scikit-learn's
defaults, because the one that matters (C = 1/(alpha W)) would tell how much weight is
left.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn import linear_model
from sklearn.base import clone
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import LabelBinarizer
from sklearn.svm import LinearSVC

from ..core.arrays import Matrix, Vector, write_lock
from ..core.rows import Rows
from ..exceptions import InvalidInput, Unsupported
from ..files import export, read_snapshot
from ..files.export import SHIP_AGAIN
from ..files.folder import refuse_nonsense
from ..long.table import LongTable
from ..preprocessing.columns import as_frame
from ..preprocessing.hashed import read_input_map
from ..preprocessing.mapped import PublicMap
from ..private_model.model import PrivateModel
from ..private_model.snapshot import PublicModel, Snapshot
from ..promise.scope import Scope
from .forgetting import Forgetting, public_model, require_known, snapshot_of
from .rows import with_owners


def load(path: str | PathLike[str], *, encoder: Any = None) -> Any:
    """Return the model that was saved in a folder.

    With the private files it continues where it was: same predictions, same removals,
    same account of releases. With the release alone it predicts, and ``forget`` raises
    NoPrivateState. Raises NothingSaved if there is no such folder, and CorruptFiles if
    anything was altered.

    Parameters
    ----------
    path
        The folder.
    encoder
        The encoder of a ``FixedMap``, which is code and never stored. Without it such a
        model forgets people by their ids, and takes no inputs.
    """
    return _make(read_snapshot(path), encoder)


def ship(
    model: Forgetting, path: str | PathLike[str], *, dtype: str = "float64"
) -> None:
    """Write the release of a fitted model into one file, in the format of its suffix.

    An existing file is replaced at once or, if anything fails, stays as it was. A new
    file is readable by its owner alone; a replaced one keeps its mode.

    Parameters
    ----------
    model
        A fitted estimator; a copy that has only the release will do.
    path
        Must end in .safetensors or .onnx; its folder must exist.
    dtype
        Precision of an .onnx file: "float64" or "float32".
    """
    require_known(model)
    with write_lock(model):
        export.ship(snapshot_of(model).public, path, dtype=dtype)


def read_shipped(path: str | PathLike[str], *, encoder: Any = None) -> Any:
    """Return the model in a shipped .safetensors file.

    It predicts and has its certificate; ``forget`` raises NoPrivateState. Raises
    NothingSaved if there is no such file, and CorruptFiles if a byte was altered.

    Parameters
    ----------
    path
        The file. Files that end in .onnx are for an ONNX runtime.
    encoder
        The encoder of a ``FixedMap``, without which such a model takes no inputs.
    """
    return _make(Snapshot(export.read_shipped(path)), encoder)


def make_estimator(public: PublicModel) -> Any:
    """Return an estimator that has a release and no private state."""
    return _make(Snapshot(public))


def estimator_of(snapshot: Snapshot) -> Any:
    """Return an estimator that is the model of a snapshot."""
    public, private = snapshot.public, snapshot.private
    model: Any = Forgetting.by_name[public.estimator](**public.parameters)
    model.n_features_in_ = public.n_features
    if public.feature_names is not None:
        model.feature_names_in_ = public.feature_names
    if public.classes is None:
        model._n_targets = public.n_targets
    if isinstance(private, PrivateModel):
        model.random_state = private.seed
    model._snapshot = snapshot
    return model


def read_rows(
    snapshot: Snapshot,
    X: Any,
    y: Any,
    *,
    sample_weight: ArrayLike | None = None,
    subjects: Iterable[object] | str | None = None,
    beside: Mapping[str, Any] | None = None,
) -> Rows:
    """Return rows to add as the private model of a snapshot keeps them.

    Labels and features are coded as those of its own rows. Raises InvalidInput, as
    ``add`` of an estimator does, for what a model like this cannot take in. An array
    has the columns of the fit, in their order. ``beside`` are exposures, offsets or
    times that labels and weights do not hold yet.
    """
    estimator = estimator_of(snapshot)
    if beside:
        if not hasattr(estimator, "read_beside"):
            raise InvalidInput(
                f"{', '.join(beside)} beside the rows, and this model has none; leave "
                "them out"
            )
        whose = subjects if isinstance(subjects, str) else None  # all of them
        X, y, subjects, sample_weight = estimator.read_beside(
            X, y, None if whose else subjects, sample_weight, **beside
        )
        subjects = whose or subjects
    if snapshot.public.feature_names is not None and as_frame(X) is None:
        del estimator.feature_names_in_  # scikit-learn would warn of missing names
    rows: Rows = estimator._read_added(snapshot, X, y, sample_weight=sample_weight)
    return with_owners(rows, subjects, model=snapshot)


def fit_copy(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    subjects: Iterable[object] | None,
    sample_weight: ArrayLike | None,
    scope: Scope,
    engine: Any = None,
) -> Snapshot:
    """Fit a copy of an estimator, which stays as it is; return the snapshot."""
    require_known(estimator)
    before = public_model(estimator)
    weighted = X.weighted if isinstance(X, LongTable) else sample_weight is not None
    if before is not None and before.weighted and not weighted:
        raise InvalidInput(
            "this model was fitted with weights (sample_weight, or class_weight of the "
            "estimator it was adopted from), and without them it would be a different "
            "model; pass sample_weight=..., or an estimator that is not fitted"
        )
    made_by = read_input_map(getattr(estimator, "preprocessing", None))
    if made_by is not None and made_by.keeps_people:
        raise Unsupported(
            "a cache of embeddings beside a registry, which does not reach it when "
            "people leave; leave cache out: the registry keeps the rows that were made"
        )
    fresh = clone(estimator)
    if getattr(estimator, "selection", None) is not None:  # a clone declares nothing
        fresh.selection = estimator.selection
    found: Snapshot = fresh._fit_snapshot(
        X,
        y,
        subjects=subjects,
        sample_weight=sample_weight,
        engine=engine,
        scope=scope,
        before=before,
    )
    return found


def make_linear(model: Any) -> Any:
    """Return linear regression."""
    return _precede(_fill(linear_model.LinearRegression(), model), model)


def make_plain(plain: Any, model: Any) -> Any:
    """Return a plain estimator with the release of a model in it."""
    return _precede(_fill(plain, model), model)


def make_logistic(model: Any) -> Any:
    """Return the linear classifier whose loss is the model's."""
    if not snapshot_of(model).public.gives_log_odds:
        # A linear classifier without probabilities, for any number of classes.
        return _precede(_fill(LinearSVC(), model), model)
    if len(model.classes_) > 2:
        return _precede(_make_one_vs_rest(model), model)
    return _precede(_fill(linear_model.LogisticRegression(), model), model)


def make_softmax(model: Any) -> Any:
    """Return softmax regression; for two classes one row of differences."""
    plain = _fill(linear_model.LogisticRegression(), model)
    if len(plain.coef_) == 2:
        plain.coef_ = plain.coef_[1:] - plain.coef_[:1]
        plain.intercept_ = plain.intercept_[1:] - plain.intercept_[:1]
    return _precede(plain, model)


def _precede(plain: Any, model: Any) -> Any:
    public = snapshot_of(model).public
    fitted: Any = public.preprocessing
    if fitted is None:
        return plain
    if fitted.takes_inputs:
        return Pipeline([("inputs", fitted.to_sklearn()), ("model", plain)])
    from ..preprocessing.sklearn_maps import make_plain
    from ..preprocessing.sklearn_transformer import make_transformer

    names: list[Any] = list(range(public.n_features))
    named = public.feature_names is not None
    if public.feature_names is not None:
        names = public.feature_names.tolist()
    steps: list[tuple[str, Any]] = []
    if isinstance(fitted, PublicMap):
        encoder, fitted = fitted.encoder, fitted.first
        if fitted is None:
            table = make_plain(encoder, names if named else len(names))
            return Pipeline([("map", table), ("model", plain)])
        steps = [("map", make_plain(encoder, fitted.n_features))]
    table = make_transformer(fitted, names, named=named)
    return Pipeline([("preprocessing", table), *steps, ("model", plain)])


def _make(snapshot: Snapshot, encoder: Any = None) -> Any:
    """Return the estimator of a snapshot read from a file."""
    with refuse_nonsense(f"the file does not contain a model; {SHIP_AGAIN}"):
        model = estimator_of(snapshot)
    if encoder is None:
        return model
    public, private = snapshot.public, snapshot.private
    fitted: Any = public.preprocessing
    if fitted is None or not fitted.takes_inputs:
        raise InvalidInput(
            "encoder=..., and this model takes numbers; leave encoder out"
        )
    made_by = fitted.made_by.attach(encoder)
    named = {model.map_parameter: made_by}
    public = replace(
        public,
        preprocessing=replace(fitted, made_by=made_by),
        parameters={**public.parameters, **named},
    )
    if isinstance(private, PrivateModel):
        encoding = private.encoding.with_input_map(made_by)
        private = replace(private, encoding=encoding)
    return estimator_of(replace(snapshot, public=public, private=private))


def _make_one_vs_rest(model: Any) -> Any:

    def binary() -> Any:
        one = _describe(linear_model.LogisticRegression(), model)
        one.classes_ = np.array([0, 1])
        return one

    plain = OneVsRestClassifier(linear_model.LogisticRegression())
    plain.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(model.classes_)
    plain.estimators_ = [
        _set_coefficients(binary(), coef[None, :], intercept=np.array([intercept]))
        for coef, intercept in zip(model.coef_, model.intercept_, strict=True)
    ]
    plain.classes_ = model.classes_.copy()
    return _describe(plain, model)


def _fill(plain: Any, model: Any) -> Any:
    if hasattr(model, "classes_"):
        plain.classes_ = model.classes_.copy()
    filled = _set_coefficients(plain, model.coef_, intercept=model.intercept_)
    return _describe(filled, model)


def _set_coefficients(plain: Any, coef: Matrix, *, intercept: Vector) -> Any:
    plain.coef_ = np.array(coef)
    plain.intercept_ = np.array(intercept) if np.ndim(intercept) else float(intercept)
    plain.n_iter_ = np.zeros(1, dtype=np.int32)
    return plain


def _describe(plain: Any, model: Any) -> Any:
    fitted = snapshot_of(model).public.preprocessing
    if fitted is not None:
        plain.n_features_in_ = fitted.n_features
        return plain
    plain.n_features_in_ = model.n_features_in_
    if hasattr(model, "feature_names_in_"):
        plain.feature_names_in_ = model.feature_names_in_.copy()
    return plain
