# SPDX-License-Identifier: Apache-2.0
"""What the estimators share that minimise an objective: fit, add and release.

A fit goes one way: parameters are read, rows checked and coded (``prepare_fit``), the
private model fitted to them and released (``fit_prepared``), and one assignment makes
that the model. A request reads its rows like those of the fit, finds them, changes the
private model, releases it, and ends in ``set_snapshot``.

The model of a fitted estimator is one ``Snapshot``, replaced at once (``forgetting``).
``coef_`` and ``intercept_`` always belong to the last release.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import partial, wraps
from inspect import Parameter as Argument
from inspect import signature
from math import sqrt
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in

from ..core.arrays import Matrix, Vector, may_share_memory, norm, write_lock
from ..core.losses import Loss
from ..core.objective import Objective, Scaling
from ..core.penalties import Penalty
from ..core.rows import Rows, in_memory
from ..display.cards import Cells
from ..display.progress import ProgressBar
from ..engines import read_engine, require_jobs
from ..exceptions import (
    CannotFit,
    InvalidInput,
    NotConverged,
    Unsupported,
)
from ..long.table import LongTable
from ..preprocessing.hashed import read_input_map
from ..preprocessing.inputs import check_inputs
from ..preprocessing.mapped import Mapped, split_encoder
from ..preprocessing.target_means import key_of
from ..private_model.answers import Adoption
from ..private_model.composition import UNCHANGED, Encoding, raw_rows
from ..private_model.labels import Labels
from ..private_model.model import PrivateModel, require_optimised
from ..private_model.row_digests import RowDigests
from ..private_model.snapshot import (
    PublicModel,
    Snapshot,
    carry_over,
    digest_data,
    replace_places,
)
from ..private_model.subjects import is_row_name, owners_of
from ..private_model.target_units import TargetUnits
from ..private_model.training_rows import NO_ROWS, KeptRows
from ..promise.budget import Budget
from ..promise.noise import SECRET_BYTES, random_bytes
from ..promise.scope import Scope
from ..removal import Mechanism, Newton
from ..removal.matrix_free import (
    AUTO,
    MatrixFree,
    require_certifiable,
    require_matrices,
)
from .forgetting import Forgetting, finish_request, people_model, read_owners
from .forgetting import public_model as public_model
from .forgetting import require_known as require_known
from .forgetting import set_snapshot as set_snapshot
from .forgetting import snapshot_of as snapshot_of
from .long_tables import prepare_table
from .parameters import (
    MECHANISMS,
    choose_object,
    describe_parameters,
    factors_of,
    name_unknown,
    penalty_of,
    require_parameters,
    warn_of_few_people,
    warn_of_loud_noise,
    warn_of_loud_scores,
    warn_without_budget,
)
from .rows import (
    Prepared,
    blame_columns,
    check_labels,
    check_rows,
    code_labels,
    make_room,
    read_addition,
    read_request,
    read_table,
    require_encodable,
    weights_of,
    with_owners,
)
from .suggestions import find_change


def _takes_rows(estimator: "Forgetful") -> bool:
    """Return True if models of this kind can be added to, or raise AttributeError."""
    if getattr(estimator, "fits_jobs", False):
        raise AttributeError(
            f"{type(estimator).__name__} cannot be added to; fit again with all rows, "
            "or use an estimator with a fixed alpha"
        )
    return True


class Forgetful(Forgetting):
    """An estimator that can forget the people it was fitted on.

    ``parameters.PARAMETERS`` describes what it takes, and completes the docstrings of
    the package's own estimators.
    """

    _n_targets: int | None = None  # of a regression; None if y is a vector
    _public_rows: Any = None  # see ``declare_public``
    map_parameter: ClassVar[str] = "preprocessing"  # which parameter a map of inputs is

    def __init_subclass__(cls, **options: Any) -> None:
        """Describe the package's own estimators."""
        super().__init_subclass__(**options)
        if cls.__module__.startswith("expunge."):
            cls.__doc__ = describe_parameters(cls)

    @name_unknown
    def __init__(
        self,
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
        loss: str | Loss | None = None,
        classes: Sequence[Any] | None = None,
        preprocessing: Any = None,
        C: float | None = None,
        class_weight: dict[Any, float] | str | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        verbose: bool = False,
        selection: Literal["none"] | None = None,
    ) -> None:
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
        self.preprocessing = preprocessing
        self.C = C
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose
        self.selection = selection

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
        engine: Any = None,
    ) -> Self:
        """Fit the model and make its first release.

        Parameters
        ----------
        X, y
            Features, dense or sparse, and labels or targets. With ``preprocessing``, X
            is a table as you have it: a data frame, or an array. A table of
            ``expunge.long`` comes alone.
        subjects
            The owner of each row. Without it nobody in the model has an id, and you
            forget rows by their position or their content.
        sample_weight
            Weights; integer weights count rows.
        engine
            Where passes run: as ``expunge.engines.read_engine`` takes it.
        """
        if self.budget is None:
            warn_without_budget()
        with write_lock(self):
            fresh = copy(self)  # a fit that fails changes nothing
            X = read_inputs(fresh, X, y, subjects)
            prepare = partial(
                prepare_fit,
                X=X,
                y=y,
                subjects=subjects,
                sample_weight=sample_weight,
                engine=engine,
            )
            fresh._snapshot = fit_prepared(
                fresh, prepare(fresh), before=public_model(self), prepare=prepare
            )
            self.__dict__ = vars(fresh) | {"_lock": write_lock(self)}
        return self

    def add(
        self,
        X: Any,
        y: ArrayLike,
        *,
        subjects: Iterable[object] | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add rows to the fitted model and make a new release. All or nothing.

        A class or a category that the model does not have comes with them: all rows
        are then read again. It is refused where others are declared, and where the
        model does not keep its rows.

        Parameters
        ----------
        X, y
            The new rows, as ``fit`` takes them.
        subjects, sample_weight
            Whose they are, and their weights, if the model was fitted with these. A
            person may bring rows several times.
        """
        bar = ProgressBar("adding", 1, shown=bool(self.verbose))
        with write_lock(self):
            private = finish_request(self)
            before = self._snapshot
            with bar:
                grown = make_room(self, before, X, y)
                added = read_addition(self, grown, X, y, sample_weight=sample_weight)
                owners = read_owners(private, subjects, n_rows=len(added))
                assert grown.private is not None
                added = with_owners(added, owners, model=grown)
                after = replace_places(
                    grown.private, NO_ROWS, added=added, owners=owners
                )
                set_snapshot(self, before.release(after))
                bar.count()
        return self

    @available_if(_takes_rows)  # type: ignore[untyped-decorator]
    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: Sequence[Any] | None = None,
        sample_weight: ArrayLike | None = None,
        subjects: Iterable[object] | None = None,
    ) -> Self:
        """Fit the model to the first rows, and ``add`` those of later calls.

        Unlike scikit-learn's, which takes a step towards the new rows, this gives the
        model of all rows so far, and each call makes a release.

        Parameters
        ----------
        X, y
            The rows.
        classes
            All classes that will come, for a classifier; the first call declares them,
            like the parameter ``classes``.
        sample_weight, subjects
            Their weights, and whose they are, as ``fit`` takes them.
        """
        with write_lock(self):
            if public_model(self) is None:
                fresh = copy(self)
                fresh.classes = self.classes if classes is None else classes
                fresh.fit(X, y, subjects=subjects, sample_weight=sample_weight)
                fresh.classes = self.classes
                self.__dict__ = vars(fresh) | {"_lock": write_lock(self)}
                return self
            known = self._public.parameters["classes"]
            if classes is not None and (known is None or {*classes} != {*known}):
                raise InvalidInput(
                    f"classes={classes!r}, which the first call did not declare; leave "
                    "classes out, or fit again; nothing was added"
                )
            return self.add(X, y, subjects=subjects, sample_weight=sample_weight)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the name of the feature that each coefficient belongs to.

        Parameters
        ----------
        input_features
            The names of the columns, if the rows had none; ``x0``, ``x1``, ... else.
        """
        public = self._public
        names: Any = _check_feature_names_in(self, input_features)
        if public.preprocessing is not None:
            names = public.preprocessing.names
        return np.array(list(names), dtype=object)

    def coef_table(self) -> Any:
        """Return the coefficients of the last release by the names of their features.

        A pandas ``DataFrame`` where pandas is installed; elsewhere the same as a dict
        of columns, each a dict by name, so that ``table["coefficient"]["age"]`` reads
        either. There is a row for each feature, after ``(intercept)`` if the model has
        one; and a column ``coefficient``, or one for each class or target if there are
        several.
        """
        public = self._public
        coef, intercept = public.coefficients
        names, values = list(self.get_feature_names_out()), coef.T
        if public.release.certificate.objective["intercept"]:
            names, values = ["(intercept)", *names], np.vstack([intercept, values])
        columns: list[Any] = ["coefficient"]
        if len(coef) > 1:
            known = public.classes
            columns = list(range(len(coef)) if known is None else known.tolist())
        try:
            from pandas import DataFrame
        except ImportError:
            rows = zip(columns, values.T.tolist(), strict=True)
            return {column: dict(zip(names, row, strict=True)) for column, row in rows}
        return DataFrame(values, index=names, columns=columns)

    @property
    def adoption_(self) -> Adoption:
        """How far adoption from scikit-learn moved the model. Private."""
        private = snapshot_of(self).private
        if private is None or require_optimised(private).adoption is None:
            raise AttributeError("the model was not adopted, or this is a copy")
        adopted = require_optimised(private).adoption
        assert adopted is not None
        return adopted

    @property
    def n_iter_(self) -> int:
        """Steps of the solver at the fit, until the first request. Private.

        After a request it would tell whether those who left were ordinary people.
        """
        private = private_model(self)
        if private.n_removed or private.accountant.n_releases > 1:
            raise AttributeError(
                "n_iter_ is the number of steps of a fit, and rows have left or come "
                "since; there is none"
            )
        return private.answer.n_steps

    @property
    def coef_(self) -> Matrix:
        """Coefficients of the last release."""
        return self._public.coefficients[0]

    @property
    def intercept_(self) -> Vector:
        """Intercept of the last release; zero if there is none."""
        return self._public.coefficients[1]

    def declare_public(self, X: Any) -> Self:
        """State that rows are public, and let the card say what noise does to them.

        It follows from the released parameters, sigma and these rows, and from nothing
        else. It is on the card in a notebook alone: no certificate and no file has it.

        Parameters
        ----------
        X
            Rows as ``predict`` takes them; they are not copied.
        """
        self._describe_noise(X, 1.0)  # refuses rows that predict would not take
        self._public_rows = X
        return self

    def _public_facts(self) -> Cells:
        sigma = self.certificate_.sigma
        if self._public_rows is None or sigma is None:
            return ()
        return (("public rows", self._describe_noise(self._public_rows, sigma)),)

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
        prepare = partial(
            prepare_fit,
            X=read_inputs(self, X, y, subjects),
            y=y,
            subjects=subjects,
            sample_weight=sample_weight,
            engine=engine,
        )
        prepared = prepare(self)
        if before is not None:
            prepared = prepared.with_pair(before.pair)
        return fit_prepared(self, prepared, scope=scope, before=before, prepare=prepare)

    def _read_added(
        self, before: Snapshot, X: Any, y: Any, *, sample_weight: ArrayLike | None
    ) -> Rows:
        return read_addition(self, before, X, y, sample_weight=sample_weight)

    def _read_removed(
        self, before: Snapshot, X: Any, y: Any, *, sample_weight: ArrayLike | None
    ) -> Rows:
        learned: Any = private_model(self).encoding.learned
        if learned is not None and key_of(learned.recipe.described) is not None:
            raise InvalidInput(
                "this model encodes categories by what other people answered, and rows "
                "do not say whose they are; forget people by their ids: "
                "forget(subjects=...)"
            )
        return read_request(self, before, X, y, sample_weight=sample_weight)

    @abstractmethod
    def _describe_noise(self, X: Any, sigma: float) -> str:
        """Return what noise alone does to these rows from one release to the next."""

    @abstractmethod
    def _learn_labels(
        self, y: Any, weight: Vector | None
    ) -> tuple[Loss, Labels | None]:
        """Return the loss for these labels, and the classes of a classifier."""

    def _choose_steps(self, X: Any) -> Any:
        """Return the preprocessing of rows as a fit is given them."""
        return self.preprocessing

    def _objective(self, loss: Loss, weight: float) -> Objective:
        """Return the objective of the parameters, for rows of this total weight."""
        return Objective(
            loss,
            penalty_of(self.penalty, self.l1_ratio),
            **factors_of(self.get_params(deep=False), weight),
            intercept=self.fit_intercept,
            penalize_intercept=self.penalize_intercept and self.fit_intercept,
        )

    def _fit_private(
        self,
        prepared: Prepared,
        *,
        start: Vector | None,
        scope: Scope,
    ) -> PrivateModel:
        rows, owners = prepared.rows, prepared.owners
        keep_data = bool(self.keep_data)
        mechanism = choose_object("mechanism", self.mechanism, choices=MECHANISMS)
        if self.budget is not None and isinstance(mechanism, MatrixFree):
            require_certifiable(prepared.objective)
        if not keep_data:
            if mechanism is not None and mechanism.needs_rows:
                raise InvalidInput(
                    f"mechanism={self.mechanism!r} needs the remaining rows; set "
                    "keep_data=True, or use 'newton'"
                )
            mechanism = Newton() if mechanism is None else mechanism
        if not prepared.is_raw and not keep_data:
            require_matrices(prepared.objective, rows.n_columns)
        require_encodable(
            prepared,
            mechanism=mechanism,
            budget=self.budget,
            keep_data=keep_data,
        )
        with ProgressBar("fitting", 1, shown=bool(self.verbose)) as bar:
            encoding = prepared.fit_encoding(rows)
            model = PrivateModel.fit(
                prepared.objective,
                rows if prepared.placed is None else prepared.placed,
                encoding=encoding,
                mechanism=mechanism,
                budget=self.budget,
                rows_kept=scope.rows_kept,
                targets=prepared.targets,
                start=start,
            )
            bar.count()
        # The solver itself always works until only rounding is left: stopping it
        # earlier would leave a model that no certificate is about.
        if self.max_iter is not None and model.answer.n_steps > self.max_iter:
            raise NotConverged(
                f"the solver took more than max_iter={self.max_iter} steps; raise it, "
                "or leave it out"
            )
        gradient = model.answer.draft.measured
        if self.tol is not None and (gradient is None or norm(gradient) > self.tol):
            raise NotConverged(
                f"rounding leaves a gradient larger than tol={self.tol}; raise it, or "
                "scale the columns to similar ranges"
            )
        stated = replace(
            encoding.state_in(scope),
            rows_in_files=prepared.table is not None,
            targets_scaled=model.terms.units is not None,
        )
        model = model.with_scope(stated)
        name = model.scope.mechanism
        if self.mechanism == "auto" and not name.endswith(AUTO):  # the rule's choice
            model = replace(model, scope=replace(model.scope, mechanism=name + AUTO))
        key = random_bytes(SECRET_BYTES)
        kept: KeptRows | None = None
        digests: RowDigests | None = None
        if keep_data:
            kept = prepared.keep_rows()
        else:
            # Where every row is a person, digests need no owners.
            named = None if is_row_name(owners[0]) else owners
            digests = RowDigests.of(in_memory(rows), key, owners=named)
        return replace(
            model,
            labels=prepared.labels,
            seed=self.random_state,
            training_rows=kept,
            digests=digests,
        )

    def __sklearn_tags__(self) -> Tags:
        """Return scikit-learn's tags: sparse input is allowed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def init_with(**own: Any) -> Callable[..., None]:
    """Return the constructor of all estimators, with these parameters before."""
    shared: Any = Forgetful.__init__
    known = signature(shared)
    keyword = Argument.POSITIONAL_OR_KEYWORD
    first, *others = known.parameters.values()
    added = [Argument(name, keyword, default=own[name]) for name in own]

    @wraps(shared)
    def init(self: Any, *args: Any, **given: Any) -> None:
        bound = init.__signature__.bind(self, *args, **given)  # type: ignore[attr-defined]
        bound.apply_defaults()
        values = dict(bound.arguments)
        for name in own:
            setattr(self, name, values.pop(name))
        shared(**values)

    init.__signature__ = known.replace(  # type: ignore[attr-defined]
        parameters=[first, *added, *others]
    )
    return name_unknown(init)


def private_model(estimator: Any) -> PrivateModel:
    """Return a fitted estimator's private model, or raise NoPrivateState."""
    return require_optimised(people_model(estimator))


def read_inputs(estimator: Any, X: Any, y: Any, subjects: Any) -> Any:
    """Return the rows of inputs that are no numbers; anything else as it is.

    A fit may be prepared more than once, and a map of inputs may be slow.
    """
    made_by = read_input_map(estimator.preprocessing)
    if made_by is None or isinstance(X, LongTable):
        return X
    require_parameters(estimator.get_params(deep=False))
    return check_inputs(estimator, made_by, X, y, subjects=subjects)


def prepare_fit(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    subjects: Any,
    sample_weight: Any,
    engine: Any = None,
) -> Prepared:
    """Learn features and labels of what ``fit`` is given; return rows and owners."""
    place = read_engine(engine)  # an address that nobody answers at ends it here
    if isinstance(X, LongTable):
        given = {"y": y, "subjects": subjects, "sample_weight": sample_weight}
        prepared = prepare_table(estimator, X, given=given)
    else:
        prepared = prepare(estimator, X, y, sample_weight=sample_weight)
        prepared = prepared.with_owners(owners_of(subjects, len(prepared.rows)))
        if getattr(estimator, "fits_jobs", False):
            return replace(prepared, engine=require_jobs(place))
    if place is None:
        return prepared
    if prepared.is_raw or prepared.balanced:
        raise Unsupported(
            "preprocessing and class_weight='balanced' need rows in memory, and an "
            "engine has them elsewhere; leave engine out, or give encoded columns"
        )
    return replace(prepared, engine=place, placed=place.put(prepared.rows))


def prepare(
    estimator: Any, X: Any, y: Any, *, sample_weight: ArrayLike | None
) -> Prepared:
    """Let an estimator learn features and labels; return the rows to fit."""
    require_parameters(estimator.get_params(deep=False))
    made_by = read_input_map(estimator.preprocessing)
    steps, encoder = None, None
    if made_by is None:
        steps, encoder = split_encoder(estimator._choose_steps(X))
    encoding: Encoding = UNCHANGED
    recipe = None
    keeps_encoded = getattr(estimator, "keep_data", "encoded") == "encoded"
    if steps is not None:
        X, y, recipe = read_table(estimator, steps, X, y)
        recipe = replace(recipe, described=replace(recipe.described, last=encoder))
    elif made_by is not None:
        X = check_inputs(estimator, made_by, X, y)
        y = check_labels(estimator, y)
        encoding = made_by.noted().encoding(X.shape[1])
    else:
        X, y = check_rows(estimator, X, y)
        if encoder is not None:
            names = getattr(estimator, "feature_names_in_", ())
            encoding = Mapped.of(
                encoder, X, keeps_encoded=keeps_encoded, columns=tuple(names)
            )
    if encoding is UNCHANGED and getattr(estimator, "keep_data", True) == "encoded":
        raise InvalidInput(
            "keep_data='encoded' is for preprocessing that is a map of rows alone "
            "(expunge.Encoder); set keep_data=True"
        )
    weight = weights_of(estimator, X, y, sample_weight=sample_weight)
    loss, labels = estimator._learn_labels(y, weight)
    total = len(y) if weight is None else float(np.add.reduce(weight))
    objective = estimator._objective(loss, total)
    if labels is not None:
        labels.require_minimiser(objective)
    coded = code_labels(y, labels, n_targets=estimator._n_targets)
    if recipe is None:
        rows = encoding.keep(X, coded, weight, objective=objective)
    else:
        rows = raw_rows(X, coded, weight, objective=objective)
    return Prepared(
        objective,
        rows,
        labels,
        weighted=sample_weight is not None,
        encoding=encoding,
        recipe=recipe,
        encoder=encoder,
        balanced=estimator.class_weight == "balanced",
        shared=made_by is not None or may_share_memory(rows.X, X),
    )


def fit_prepared(
    estimator: Forgetful,
    prepared: Prepared,
    *,
    start: Vector | None = None,
    scope: Scope | None = None,
    before: PublicModel | None = None,
    prepare: Callable[[Any], Prepared] | None = None,
) -> Snapshot:
    """Fit prepared rows and make the first release; the estimator stays as it is.

    Parameters
    ----------
    estimator
        The estimator that has prepared them.
    prepared
        The rows, with their owners.
    start
        Where the solver starts.
    scope
        What else certificates should state.
    before
        The model of an earlier fit, whose declarations still hold.
    prepare
        Prepares the same data for a changed estimator. With it, a first fit that cannot
        be certified names a change that works.
    """
    labels = prepared.labels
    data, rows = None, prepared.rows
    if estimator.budget is not None and isinstance(rows, Rows):
        has_ones = prepared.objective.intercept and not prepared.is_raw
        data = digest_data(rows.X, rows.y, n_columns=rows.n_columns - has_ones)
    scope = scope or Scope()
    first = before is None and not scope.counted_apart
    keeps = bool(getattr(estimator, "keep_data", True))
    untuned = getattr(estimator, "selection", None) == "none"
    scope = replace(scope, rows_kept=scope.rows_kept and keeps, untuned=untuned)
    scope = carry_over(scope, before, budget=estimator.budget, data=data)
    scope = replace(scope, classes="none" if labels is None else labels.stated)
    scope = replace(scope, classes_weighted=isinstance(estimator.class_weight, dict))
    try:
        private = estimator._fit_private(prepared, start=start, scope=scope)
    except CannotFit as error:
        # For fits alone, when nobody has left: after a removal the sizes of columns
        # would say something about the removed rows. Raw rows are not what was fitted.
        blame = "" if prepared.is_raw else blame_columns(estimator, prepared.rows)
        told = type(error)(f"{error}; {blame}" if blame else str(error))
        limits = (getattr(estimator, name, None) for name in ("tol", "max_iter"))
        budget = estimator.budget and estimator.budget.at_fit(rows_kept=scope.rows_kept)
        if prepare is not None and budget is not None and first and not any(limits):

            def attempt(other: Forgetful) -> PrivateModel:
                return other._fit_private(prepare(other), start=None, scope=scope)

            change = find_change(
                estimator,
                prepared,
                budget=budget,
                attempt=attempt,
                columns_differ=bool(blame),
            )
            if change is not None:
                parts = [str(error), *([blame] if blame else [])]
                said = "; ".join(part.partition("; ")[0] for part in parts)
                told = type(error)(f"{said}; {change} works")
                told.change = change
        raise told from None
    _require_quiet(private, prepared)
    private, release, record = private.with_noise().release()
    # Seeds stay private, and progress is for the one who fits.
    left_out = {"random_state": None, "verbose": False}
    parameters = deepcopy(estimator.get_params(deep=False)) | left_out
    parameters["budget"] = private.budget  # with the sigma of this fit, for good
    if prepared.recipe is not None:
        parameters["preprocessing"] = prepared.recipe.described
    elif prepared.encoder is not None:
        parameters["preprocessing"] = prepared.encoder
    if prepared.encoding.input_map is not None:
        parameters[estimator.map_parameter] = prepared.encoding.input_map
    if estimator.classes is not None:
        parameters["classes"] = list(estimator.classes)
    public = PublicModel(
        release=release,
        estimator=type(estimator).__name__,
        parameters=parameters,
        n_features=estimator.n_features_in_,
        feature_names=getattr(estimator, "feature_names_in_", None),
        n_targets=estimator._n_targets,
        pair=None if labels is None else labels.pair,
        weighted=prepared.weighted,
        **private.public_parts,
    )
    return Snapshot(public, private, record)


def _require_quiet(private: PrivateModel, prepared: Prepared) -> None:
    """Warn if noise is larger than what targets or classes tell, or people are few.

    At a fit alone, when nobody has left.
    """
    terms, targets = private.terms, prepared.targets
    if terms.budget is not None and prepared.owners:
        warn_of_few_people(len(set(prepared.owners)))
    if terms.budget is None or terms.units is not None:
        return
    sizes = private.answer.state.magnitude
    typical = sqrt(sizes.square_norm / sizes.weight)
    if prepared.labels is not None:
        warn_of_loud_scores(terms.budget.deviation * typical)
        return
    if targets is None or not private.objective.loss.has_identity_link:
        return
    warn_of_loud_noise(
        private.objective,
        noise=terms.budget.deviation * typical,
        deviation=float(TargetUnits.of(targets).deviation.min()),
    )
