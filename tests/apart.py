# SPDX-License-Identifier: Apache-2.0
"""Rows that are sealed apart: where a registry has them, and what opens them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from expunge.ledger import subject_tags
from expunge.linear_model.snapshots import private_model
from expunge.registry import Registry
from expunge.registry.keys import read_tag_keys
from expunge.registry.loaded_model import load_rows, split_parts
from expunge.registry.storage import aside_table, people_table
from expunge.registry.storage.people_table import PageKeys, SealedRows
from tests.registries import data, estimator, private_model_of, rows_in
from tests.test_erasure import everything, found, spelled, traces_of_rows

APART = ("~all", "~half")
IN_USE = {"all": "in use", "half": "in use"}
RESTRICTED = dict.fromkeys(APART, "restricted")
HELD = dict.fromkeys(APART, "held")


def tags_of(registry: Registry, name: str) -> tuple[str, ...]:
    """Return the tags that a person may have."""
    return subject_tags(name, read_tag_keys(registry._context.paths))


def sealed_of(registry: Registry, name: str, under: str) -> list[SealedRows]:
    """Return what is sealed of a person under a name."""
    with registry._context.store.read() as connection:
        return rows_in(connection, under, tags=tags_of(registry, name))


def where(registry: Registry, name: str) -> dict[str, str]:
    """Return under which names a person's rows are, and at which place."""
    with registry._context.store.read() as connection:
        every = people_table.find_tagged_rows(connection, tags_of(registry, name))
        said = aside_table.read_asides(connection, [one.subject for _, one in every])
    places = {key: one.place for key, one in said.items()}
    return {under: places.get((under, one.subject), "in use") for under, one in every}


def aside_keys(registry: Registry, model: str) -> PageKeys:
    """Return the page keys of a model's rows that were set aside."""
    context = registry._context
    with context.store.read() as connection:
        file = aside_table.read_file(connection, context.checkpoints, model=model)
    return file.page_keys


def open_rows(registry: Registry, name: str, under: str, *, keys: PageKeys) -> Any:
    """Return the newest features of a person under a name, opened with these keys."""
    there = sealed_of(registry, name, under)
    with registry._context.store.read() as connection:
        pages = people_table.read_pages(connection, under, found=there, page_keys=keys)
    (content,) = people_table.unseal_rows(under, there, pages=pages)
    rows, _ = load_rows(split_parts(content)[-1:])
    return np.asarray(rows.X)[:, :-1]  # the last column is the intercept's


def open_apart(registry: Registry, name: str, model: str = "all") -> Any:
    """Return the newest features of a person that were set aside."""
    keys = aside_keys(registry, model)
    return open_rows(registry, name, f"~{model}", keys=keys)


def rows_of(name: str) -> list[int]:
    """Return the positions of a person's rows in the data."""
    return [row for row, owner in enumerate(data()[2]) if owner == name]


def features_of(name: str) -> Any:
    """Return the features of a person in the data."""
    return data()[0][rows_of(name)]


def count_releases(registry: Registry) -> dict[str, int]:
    """Return how many releases of each model there were."""
    return {one.name: one.number for one in registry.status().models}


def require_fitted_to(registry: Registry, X: Any, y: Any) -> None:
    """See that the model of everybody is as if it had been fitted to these rows."""
    other = estimator(budget=None)
    other.fit(X, y)
    model = private_model_of(registry, "all")
    gap = model.answer.draft.theta - private_model(other).answer.draft.theta
    assert np.linalg.norm(gap) <= model.answer.radius.value


def require_erased(
    registry: Registry, folder: Path, *, person: str, erase: Callable[[], object]
) -> None:
    """See that rows set aside, and their keys, are on disk before and not after."""
    (tag,) = tags_of(registry, person)
    sealed = [
        one.sealed[:64] for under in APART for one in sealed_of(registry, person, under)
    ]
    keys = spelled([key.tobytes() for key in aside_keys(registry, "all")])
    vault = registry._context.checkpoints.vault
    keys += spelled([vault.read_keys("~all").present])
    before = everything(folder)
    assert found(sealed, before) and found(keys, before)
    erase()
    after = everything(folder)
    assert not found(sealed, after) and not found(keys, after)
    assert not found(traces_of_rows(person), after)
    assert found([tag.encode()], after) == [str(folder / "journal")]
