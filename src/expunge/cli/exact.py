# SPDX-License-Identifier: Apache-2.0
"""Exact models on the command line: ``fit --model``, and the command ``recommend``."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InvalidInput
from .options import FOLDER, Folder, ModelName, note, open_registry, require_file
from .output import Result

if TYPE_CHECKING:
    from ..tables import TrainingTable


class ExactName(StrEnum):
    """Models of exact sums."""

    ease = "ease"
    popularity = "popularity"
    multinomial_nb = "multinomial-nb"
    complement_nb = "complement-nb"
    bernoulli_nb = "bernoulli-nb"
    nearest_centroid = "nearest-centroid"
    exact_ridge = "exact-ridge"
    exact_linear = "exact-linear"


RECOMMENDERS = (ExactName.ease, ExactName.popularity)
REGRESSIONS = (ExactName.exact_ridge, ExactName.exact_linear)


@dataclass(frozen=True, kw_only=True)
class ExactOptions:
    """Options of models that forget to the last bit."""

    model: Annotated[
        ExactName | None,
        typer.Option(
            metavar="MODEL",
            help="A model of exact sums, which forgets to the last bit, without noise "
            "and without a budget: ease or popularity, which are recommenders (name "
            "--user and --item), or, of columns that are numbers as they are, "
            "multinomial-nb, complement-nb, bernoulli-nb, nearest-centroid, "
            "exact-ridge or exact-linear.",
        ),
    ] = None
    user: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Of a recommender: whose each pair is."),
    ] = None
    item: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Of a recommender: what they have."),
    ] = None
    rating: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Of a recommender: whole numbers from 1 (default: a user has an item "
            "or not).",
        ),
    ] = None
    l2: Annotated[
        float | None, typer.Option(help="Of ease: its penalty (default 500).")
    ] = None
    decimals: Annotated[
        int | None,
        typer.Option(
            help="Grid that columns are rounded to (default: 6; counts must be whole)."
        ),
    ] = None

    @property
    def task(self) -> str:
        """What a model of a table does."""
        return "regression" if self.model in REGRESSIONS else "classification"

    def require_columns(self) -> None:
        """Raise InvalidInput for columns that the model does not have."""
        given = {"--user": self.user, "--item": self.item, "--rating": self.rating}
        if self.model in RECOMMENDERS:
            if self.user is None or self.item is None:
                raise InvalidInput(
                    f"--model {self.model.value} takes pairs; name their columns with "
                    "--user and --item"
                )
            return
        for option, value in given.items():
            if value is not None:
                raise InvalidInput(
                    f"{option} is for --model ease and popularity; omit it, or name one"
                )

    def build(self, *, alpha: float | None = None, classes: Any = None) -> Any:
        """Return the unfitted estimator."""
        from .. import linear_model as models

        kinds: dict[ExactName, Any] = {
            ExactName.ease: models.EASE,
            ExactName.popularity: models.Popularity,
            ExactName.multinomial_nb: models.MultinomialNB,
            ExactName.complement_nb: models.ComplementNB,
            ExactName.bernoulli_nb: models.BernoulliNB,
            ExactName.nearest_centroid: models.NearestCentroid,
            ExactName.exact_ridge: models.ExactRidge,
            ExactName.exact_linear: models.ExactLinearRegression,
        }
        assert self.model is not None
        kind = kinds[self.model]
        asked = {
            "l2": self.l2,
            "decimals": self.decimals,
            "alpha": alpha,
            "classes": None if classes is None else list(classes),
        }
        given = {name: value for name, value in asked.items() if value is not None}
        known = kind().get_params()
        for name in given:
            if name not in known:
                raise InvalidInput(
                    f"--{name} with --model {self.model.value}, which has none; omit it"
                )
        return kind(**given)


def read_user_items(file: Path, sums: ExactOptions) -> tuple[Any, Any, list[str]]:
    """Return items, ratings and users of the pairs in a table."""
    import numpy as np

    from ..tables.files import open_table
    from ..tables.people import read_ids

    require_file(file)
    users, items = (read_ids(file, column) for column in (sums.user, sums.item))
    if sums.rating is None:
        return np.array(items), None, users
    column = open_table(file).read_columns([sums.rating], [])[sums.rating]
    try:
        ratings = np.asarray(column.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"column {sums.rating!r} of {file} holds words; ratings are whole numbers"
        ) from None
    return np.array(items), ratings, users


def require_numbers(table: "TrainingTable", model: str) -> None:
    """Raise InvalidInput unless all features of a table are numbers without gaps."""
    for column in table.schema.used:
        values = table.X[column.name]
        if column.kind != "number" or values.null_count:
            what = "gaps" if column.kind == "number" else f"is a {column.kind}"
            raise InvalidInput(
                f"column {column.name!r} {what}, and --model {model} takes numbers as "
                f"they are; leave it out (--drop {column.name!r})"
            )


def recommend(
    name: ModelName,
    items: Annotated[
        list[str] | None,
        typer.Argument(metavar="ITEM", help="What somebody has."),
    ] = None,
    *,
    k: Annotated[int, typer.Option("--k", min=1, help="How many.")] = 10,
    registry: Folder = FOLDER,
) -> Result:
    """Recommend items to somebody who has these, by the newest release of a model.

    The model's weights stay in the registry. The first answer after a request computes
    them, which takes seconds where there are thousands of items.
    """
    with open_registry(registry) as opened:
        found = opened.models.recommend(name, items or [], k=k)
        note(opened, "recommend", name)
    return Result({"model": name, "items": found}, "\n".join(found))
