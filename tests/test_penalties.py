# SPDX-License-Identifier: Apache-2.0
"""Penalties: values known by hand, and parameters that are refused."""

import numpy as np
import pytest

from expunge import L1, L2, ElasticNet, GroupLasso, Huber, NuclearNorm, Objective
from expunge.core.penalties import Penalty
from expunge.exceptions import InvalidInput

THETA = np.array([[3.0], [-4.0], [0.0]])


@pytest.mark.parametrize(
    ("penalty", "value"),
    [
        (L2(), 12.5),
        (L1(), 7.0),
        (ElasticNet(0.25), 0.25 * 7.0 + 0.75 * 12.5),
        (GroupLasso([0, 0, 1]), np.sqrt(2.0) * 5.0),
        (NuclearNorm(), 5.0),
    ],
)
def test_values_known_by_hand(penalty: Penalty, value: float) -> None:
    quadratic = 0.5 * penalty.strong_convexity * float(np.vdot(THETA, THETA))
    assert np.isclose(quadratic + penalty.kink(THETA), value)


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0, -0.5, np.nan])
def test_elastic_net_points_to_its_ends(l1_ratio: float) -> None:
    with pytest.raises(InvalidInput, match=r"ends are L2\(\) and L1\(\)"):
        ElasticNet(l1_ratio)


@pytest.mark.parametrize("groups", [[], [0, 2], [1, 2], [-1, 0]])
def test_groups_are_numbered_without_gaps(groups: list[int]) -> None:
    with pytest.raises(InvalidInput, match="without gaps"):
        GroupLasso(groups)


def test_groups_must_cover_the_features(rng: np.random.Generator) -> None:
    objective = Objective(Huber(), GroupLasso([0, 1]), 0.1, intercept=True)
    assert len(objective.rows(rng.normal(size=(4, 2)), np.ones(4))) == 4
    with pytest.raises(
        InvalidInput, match="numbers 2 features and the model penalises 3"
    ):
        objective.rows(rng.normal(size=(4, 3)), np.ones(4))


def test_penalties_are_values() -> None:
    assert GroupLasso([0, 1]) == GroupLasso((0, 1))
    assert len({L1(), L1(), ElasticNet(0.5), ElasticNet(0.5)}) == 2


@pytest.mark.parametrize("penalty", [L1(), ElasticNet(0.5), GroupLasso([0, 0, 1])])
def test_a_small_problem_has_coefficients(penalty: Penalty) -> None:
    at_rest = penalty.working_set(np.zeros((3, 1)), np.array([[0.1], [0.1], [0.3]]))
    assert at_rest.columns.tolist() == [2]
    at_work = penalty.working_set(np.eye(3)[:, :1], np.array([[0.1], [0.1], [9.0]]))
    assert {0, 2} <= set(at_work.columns.tolist())
