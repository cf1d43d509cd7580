# SPDX-License-Identifier: Apache-2.0
"""The estimators: logistic, linear and softmax regression that can forget."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..core.arrays import Matrix, Vector, row_norms
from ..core.losses import HalfSquared, Logistic, Loss, Multinomial
from ..core.objective import Scaling
from ..core.penalties import Penalty
from ..exceptions import InvalidInput, Unsupported
from ..preprocessing.fixed_map import FixedMap
from ..private_model.labels import Labels, learn_labels
from ..private_model.snapshot import PublicModel
from ..promise.budget import Budget
from ..promise.decisions import (
    class_chances,
    describe_share,
    prediction_moments,
    share_changed,
)
from ..removal import Mechanism
from ..removal.matrix_free import has_small_matrices
from .base import Forgetful, public_model
from .fitting import make_linear, make_logistic, make_softmax
from .parameters import (
    BINARY_LOSSES,
    HEAD_LOSSES,
    REGRESSION_LOSSES,
    choose_object,
    name_unknown,
)
from .rows import refuse_missing_dates, require_named_classes


class _Classifier(ClassifierMixin, Forgetful):
    """Classes of any type, coded for the loss."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of the last release, sorted."""
        return np.asarray(self._public.classes)

    @abstractmethod
    def _base_loss(self, y: Any) -> Loss:
        """Return the loss that the parameters name, for two classes."""

    def _learn_labels(
        self, y: Any, weight: Vector | None
    ) -> tuple[Loss, Labels | None]:
        check_classification_targets(y)
        pair = self._base_loss(y)
        labels = learn_labels(y, weight, self.classes, pair=pair)
        require_named_classes(labels, self.class_weight)
        loss = labels.loss_like(pair)
        return loss, replace(labels, signed=loss.outputs == 1)

    def decision_function(self, X: Any) -> Vector:
        """Return the predictors: (n,) for two classes, (n, k) for more."""
        eta = compute_predictor(self, X)
        if eta.shape[1] > 2:
            return eta
        return eta[:, 0] if eta.shape[1] == 1 else eta[:, 1] - eta[:, 0]

    def predict(self, X: Any) -> Any:
        """Return the class of each row."""
        public = self._public  # classes and parameters of one release
        eta = compute_predictor(self, X, public)
        if eta.shape[1] == 1:
            return np.asarray(public.classes)[(eta[:, 0] > 0.0).astype(np.intp)]
        return np.asarray(public.classes)[np.argmax(eta, axis=1)]

    def _describe_noise(self, X: Any, sigma: float) -> str:
        eta = compute_predictor(self, X)
        # The next release differs from this one by the noise of both.
        chances = class_chances(eta, sqrt(2.0) * sigma * noise_lengths(self, X))
        now = class_chances(eta, np.zeros(len(eta)))
        return (
            f"about {describe_share(share_changed(now, chances))} of the decisions on "
            f"{len(eta)} of them differ from one release to the next by noise alone"
        )


def _has_probabilities(model: "LogisticRegression") -> bool:
    """Return True if predictors are log-odds, or raise AttributeError.

    Those of the release decide; before a fit, those of the parameters.
    """
    if not _binary_loss(model).has_probabilities:
        raise AttributeError(
            "probabilities need loss='logistic', or a loss that has them; use "
            "decision_function"
        )
    return True


class LogisticRegression(_Classifier):
    """Logistic regression that can forget; one-vs-rest for more than two classes.

    Minimises mean loss + alpha penalty + ridge/2 |coefficients|^2. ``loss`` is
    "logistic" or "squared_hinge", or any loss object of one output: it gets +1 for a
    row's own class and -1 for the others.
    """

    def _base_loss(self, y: Any) -> Loss:
        del y
        return choose_object("loss", self.loss, choices=BINARY_LOSSES)

    def to_sklearn(self) -> Any:
        """Return LogisticRegression, OneVsRestClassifier of it, or LinearSVC."""
        return make_logistic(self)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Matrix:
        """Return the probability of each class, normalised for one-vs-rest."""
        loss = _binary_loss(self)
        return _logistic_chances(compute_predictor(self, X), loss)


class SoftmaxRegression(_Classifier):
    """Softmax (multinomial logistic) regression that can forget.

    Penalties on the whole matrix of coefficients (``NuclearNorm``, ``GroupLasso``) are
    useful here; leave out ``loss``.
    """

    def _base_loss(self, y: Any) -> Loss:
        del y
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
        return _softmax_chances(compute_predictor(self, X))


def _logistic_chances(eta: Matrix, loss: Loss) -> Matrix:
    if eta.shape[1] == 1:
        p = loss.mean(eta[:, 0])
        return np.column_stack([1.0 - p, p])
    return loss.for_classes(eta.shape[1]).mean(eta)


def _softmax_chances(eta: Matrix) -> Matrix:
    if eta.shape[1] == 1:  # adopted from scikit-learn, with two classes left
        eta = np.hstack([np.zeros_like(eta), eta])
    return Multinomial(eta.shape[1]).mean(eta)


class EmbeddingClassifier(_Classifier):
    """A classifier of texts, images or anything by their embeddings, that can forget.

    A fixed encoder makes a row of each input, and a linear head on it is fitted:
    softmax where its matrices are small, and one-vs-rest otherwise, where they are
    smaller. Without an encoder it takes embeddings.
    """

    map_parameter = "encoder"

    @name_unknown
    def __init__(
        self,
        encoder: Any = None,
        *,
        alpha: float | None = None,
        l1_ratio: float = 0.0,
        penalty: Penalty | None = None,
        ridge: float = 0.0,
        scaling: Scaling | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        mechanism: str | Mechanism = "auto",
        budget: Budget | None = None,
        keep_data: bool | Literal["encoded"] = True,
        random_state: int | None = None,
        loss: str | None = None,
        classes: Sequence[Any] | None = None,
        C: float | None = None,
        class_weight: dict[Any, float] | str | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        verbose: bool = False,
        selection: Literal["none"] | None = None,
    ) -> None:
        self.encoder = encoder
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.penalty = penalty
        self.ridge = ridge
        self.scaling = scaling
        self.fit_intercept = fit_intercept
        self.penalize_intercept = penalize_intercept
        self.mechanism = mechanism
        self.budget = budget
        self.keep_data = keep_data
        self.random_state = random_state
        self.loss = loss
        self.classes = classes
        self.C = C
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.selection = selection

    @property
    def preprocessing(self) -> FixedMap | None:
        """The encoder as a map of inputs; None if rows are embeddings."""
        if self.encoder is None or isinstance(self.encoder, FixedMap):
            return self.encoder
        return FixedMap(self.encoder)

    def _base_loss(self, y: Any) -> Loss:
        if self.loss is not None:
            return choose_object("loss", self.loss, choices=HEAD_LOSSES)
        n_classes = len(np.unique(y) if self.classes is None else self.classes)
        if n_classes <= 2:
            return Logistic()
        objective = self._objective(Multinomial(n_classes), float(len(y)))
        width = self.n_features_in_ + self.fit_intercept
        small = has_small_matrices(objective, width, n_rows=len(y))
        return Multinomial(2) if small else Logistic()

    def to_sklearn(self) -> Any:
        """Return LogisticRegression, or OneVsRestClassifier of it."""
        made = make_softmax if self._public.loss == "Multinomial" else make_logistic
        return made(self)

    def predict_proba(self, X: Any) -> Matrix:
        """Return the probability of each class, normalised for one-vs-rest."""
        eta = compute_predictor(self, X)
        if self._public.loss == "Multinomial":
            return _softmax_chances(eta)
        return _logistic_chances(eta, Logistic())


class Regression(RegressorMixin, Forgetful):
    """Targets, or responses of which a mean is predicted."""

    @abstractmethod
    def loss_of(self, parameters: Mapping[str, Any]) -> Loss:
        """Return the loss that parameters name."""

    def _fitted_loss(self) -> Loss:
        """Return that of the last release; before a fit, that of the parameters."""
        public = public_model(self)
        named = self.get_params(deep=False) if public is None else public.parameters
        return self.loss_of(named)

    def predict(self, X: Any) -> Vector:
        """Return the predictions: (n,), or (n, k) for several targets."""
        eta = compute_predictor(self, X)
        if eta.shape[1] > 1:
            return eta
        mean = self._fitted_loss().mean(eta[:, 0])
        return mean if self._n_targets is None else mean[:, None]

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

    def _describe_noise(self, X: Any, sigma: float) -> str:
        eta, mean = compute_predictor(self, X), self._fitted_loss().mean
        units = self._public.target_deviation
        share = np.ones(eta.shape[1]) if units is None else np.array(units)
        spread = sqrt(2.0) * sigma * np.outer(noise_lengths(self, X), share)
        expected, variance = prediction_moments(eta, spread, mean=mean)
        typical = sqrt(float(np.mean((expected - mean(eta)) ** 2 + variance)))
        return (
            f"a prediction on {len(eta)} of them differs by about {typical:.2g} from "
            "one release to the next by noise alone"
        )

    def _refuse_classes(self) -> None:
        if self.classes is not None:
            raise InvalidInput(
                f"classes={self.classes!r}; a regression has none; leave it out"
            )


class LinearRegression(MultiOutputMixin, Regression):
    """Linear regression that can forget, for one target or several.

    Minimises mean loss + alpha penalty + ridge/2 |coefficients|^2. ``loss`` is
    "half_squared" or "huber" (one target), or any loss object of one output; its
    ``mean`` makes predictions of predictors.
    """

    def to_sklearn(self) -> Any:
        """Return LinearRegression."""
        if not self._fitted_loss().has_identity_link:
            raise Unsupported(
                "scikit-learn's LinearRegression predicts x.coef + intercept, and this "
                "loss predicts something else; predict with this model"
            )
        return make_linear(self)

    def loss_of(self, parameters: Mapping[str, Any]) -> Loss:
        """Return the loss that parameters name."""
        loss: Loss = choose_object(
            "loss", parameters["loss"], choices=REGRESSION_LOSSES
        )
        return loss

    def _learn_labels(
        self, y: Any, weight: Vector | None
    ) -> tuple[Loss, Labels | None]:
        del weight
        self._refuse_classes()
        self._n_targets = None if np.ndim(y) == 1 else int(np.shape(y)[1])
        loss = self.loss_of(self.get_params(deep=False))
        if self._n_targets in (None, 1):
            return loss, None
        if loss != HalfSquared():
            raise Unsupported(
                f"loss={self.loss!r} is for one target and y has {self._n_targets}; "
                "use loss='half_squared'"
            )
        return HalfSquared(outputs=self._n_targets), None

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags."""
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        return tags


def _binary_loss(model: Forgetful) -> Loss:
    """Return the loss of the last release; before a fit, that of the parameters."""
    public = public_model(model)
    given = model.loss if public is None else public.parameters["loss"]
    loss: Loss = choose_object("loss", given, choices=BINARY_LOSSES)
    return loss


def compute_predictor(
    model: Forgetful, X: Any, public: PublicModel | None = None
) -> Matrix:
    """Return X coef' + intercept, both of one release, (n, k)."""
    public = model._public if public is None else public
    coef, intercept = public.coefficients
    eta: Matrix = _encode(model, X, public) @ coef.T + intercept
    return eta


def noise_lengths(model: Forgetful, X: Any) -> Vector:
    """Return what noise of deviation one on each parameter is on a predictor, (n,).

    That is the length of the row as the model sees it, the intercept's one included.
    """
    public = model._public
    ones = float(bool(public.release.certificate.objective["intercept"]))
    return np.sqrt(row_norms(_encode(model, X, public)) ** 2 + ones)


def _encode(model: Forgetful, X: Any, public: PublicModel) -> Any:
    """Return rows as the release takes them, without an intercept."""
    if public.preprocessing is None:
        given = X
        X = validate_data(model, X, accept_sparse="csr", dtype=np.float64, reset=False)
        refuse_missing_dates(given, X)
        return X
    if public.preprocessing.takes_inputs:
        return public.preprocessing.encode(X)
    X = validate_data(model, X, skip_check_array=True, reset=False)
    return public.preprocessing.encode(X)
