# SPDX-License-Identifier: Apache-2.0
"""The estimators: logistic, linear and softmax regression that can forget."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..core.arrays import Matrix, Vector
from ..core.class_losses import Multinomial
from ..core.losses import HalfSquared, Loss
from ..exceptions import InvalidInput, Unsupported
from ..files.onnx_graph import LOG_ODDS
from ..private_model.labels import Labels, learn_labels
from ..private_model.snapshot import PublicModel
from .base import Forgetful
from .fitting import make_linear, make_logistic, make_softmax
from .parameters import BINARY_LOSSES, REGRESSION_LOSSES, choose_object
from .sklearn_parameters import require_named_classes


class _Classifier(ClassifierMixin, Forgetful):
    """Classes of any type, coded for the loss."""

    def _validate(self, X: Any, y: Any, *, reset: bool = True) -> tuple[Any, Any]:
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, reset=reset
        )
        return X, y

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of the last release, sorted."""
        return np.asarray(self._public.classes)

    @abstractmethod
    def _base_loss(self) -> Loss:
        """Return the loss that the parameters name, for two classes."""

    def _learn_labels(
        self, y: Any, weight: Vector | None
    ) -> tuple[Loss, Labels | None]:
        check_classification_targets(y)
        pair = self._base_loss()
        labels = learn_labels(y, weight, self.classes, pair=pair)
        require_named_classes(labels, self.class_weight)
        loss = labels.loss_like(pair)
        return loss, replace(labels, signed=loss.outputs == 1)

    def _code_labels(self, y: Any, labels: Labels | None) -> Vector:
        assert labels is not None
        return labels.encode(y)

    def decision_function(self, X: Any) -> Vector:
        """Return the predictors: (n,) for two classes, (n, k) for more."""
        eta = _compute_predictor(self, X)
        if eta.shape[1] > 2:
            return eta
        return eta[:, 0] if eta.shape[1] == 1 else eta[:, 1] - eta[:, 0]

    def predict(self, X: Any) -> Any:
        """Return the class of each row."""
        public = self._public  # classes and parameters of one release
        eta = _compute_predictor(self, X, public)
        if eta.shape[1] == 1:
            return np.asarray(public.classes)[(eta[:, 0] > 0.0).astype(np.intp)]
        return np.asarray(public.classes)[np.argmax(eta, axis=1)]


class LogisticRegression(_Classifier):
    """Logistic regression that can forget; one-vs-rest for more than two classes.

    Minimises mean loss + alpha penalty + ridge/2 |coefficients|^2. ``loss`` is
    "logistic" or "squared_hinge", or any loss object of one output: it gets +1 for a
    row's own class and -1 for the others.
    """

    def _base_loss(self) -> Loss:
        return choose_object("loss", self.loss, choices=BINARY_LOSSES)

    def to_sklearn(self) -> Any:
        """Return LogisticRegression, OneVsRestClassifier of it, or LinearSVC."""
        return make_logistic(self)

    def predict_proba(self, X: Any) -> Matrix:
        """Return the probability of each class, normalised for one-vs-rest."""
        public = self._public
        if public.loss not in LOG_ODDS:
            raise Unsupported(
                "probabilities need loss='logistic'; use decision_function"
            )
        p: Matrix = expit(_compute_predictor(self, X, public))
        if p.shape[1] == 1:
            return np.hstack([1.0 - p, p])
        return np.asarray(p / p.sum(axis=1, keepdims=True))


class SoftmaxRegression(_Classifier):
    """Softmax (multinomial logistic) regression that can forget.

    Penalties on the whole matrix of coefficients (``NuclearNorm``, ``GroupLasso``) are
    useful here; leave out ``loss``.
    """

    def _base_loss(self) -> Loss:
        if self.loss is not None:
            raise InvalidInput(
                f"loss={self.loss!r}; softmax regression has its own; leave it out"
            )
        return Multinomial(2)

    def to_sklearn(self) -> Any:
        """Return LogisticRegression."""
        return make_softmax(self)

    def predict_proba(self, X: Any) -> Matrix:
        """Return the probability of each class."""
        eta = _compute_predictor(self, X)
        if eta.shape[1] == 1:  # adopted from scikit-learn, with two classes left
            eta = np.hstack([np.zeros_like(eta), eta])
        probabilities: Matrix = softmax(eta, axis=1)
        return probabilities


class LinearRegression(MultiOutputMixin, RegressorMixin, Forgetful):
    """Linear regression that can forget, for one target or several.

    Minimises mean loss + alpha penalty + ridge/2 |coefficients|^2. ``loss`` is
    "half_squared" or "huber" (one target).
    """

    def to_sklearn(self) -> Any:
        """Return LinearRegression."""
        return make_linear(self)

    def predict(self, X: Any) -> Vector:
        """Return the predictions: (n,), or (n, k) for several targets."""
        eta = _compute_predictor(self, X)
        return eta[:, 0] if self._n_targets is None else eta

    @property
    def coef_(self) -> Matrix:
        """Coefficients of the last release: (d,), or (k, d) for several targets."""
        coef = super().coef_
        return coef[0] if self._n_targets is None else coef

    @property
    def intercept_(self) -> Vector:
        """Intercept of the last release: a number, or one for each target."""
        intercept: Vector = super().intercept_
        return intercept[0] if self._n_targets is None else intercept

    def _validate(self, X: Any, y: Any, *, reset: bool = True) -> tuple[Any, Any]:
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=np.float64,
            multi_output=True,
            y_numeric=True,
            reset=reset,
        )
        return X, y

    def _learn_labels(
        self, y: Any, weight: Vector | None
    ) -> tuple[Loss, Labels | None]:
        del weight
        if self.classes is not None:
            raise InvalidInput(
                f"classes={self.classes!r}; a regression has none; leave it out"
            )
        self._n_targets = None if np.ndim(y) == 1 else int(np.shape(y)[1])
        return self._loss(), None

    def _loss(self) -> Loss:
        loss = choose_object("loss", self.loss, choices=REGRESSION_LOSSES)
        if self._n_targets in (None, 1):
            return loss
        if loss != HalfSquared():
            raise Unsupported(
                f"loss={self.loss!r} is for one target and y has {self._n_targets}; "
                "use loss='half_squared'"
            )
        return HalfSquared(outputs=self._n_targets)

    def _code_labels(self, y: Any, labels: Labels | None) -> Vector:
        del labels
        targets = np.asarray(y, dtype=np.float64)
        return targets.ravel() if self._n_targets == 1 else targets

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags."""
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        return tags


def _compute_predictor(
    model: Forgetful, X: Any, public: PublicModel | None = None
) -> Matrix:
    """Return X coef' + intercept, both of one release, (n, k)."""
    public = model._public if public is None else public
    if public.preprocessing is None:
        X = validate_data(model, X, accept_sparse="csr", dtype=np.float64, reset=False)
    else:
        X = validate_data(model, X, skip_check_array=True, reset=False)
        X = public.preprocessing.encode(X)
    coef, intercept = public.coefficients
    eta: Matrix = X @ coef.T + intercept
    return eta
