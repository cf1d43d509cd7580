# SPDX-License-Identifier: Apache-2.0
"""Certificates: the budget and the request log, and nothing of the removed rows."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import jsonschema
import numpy as np
import pytest

from expunge import L2, GroupLasso, Logistic, Multinomial, Objective
from expunge.exceptions import InvalidInput, Unsupported
from expunge.promise.accountant import TunedOnData
from expunge.promise.budget import Budget
from expunge.promise.canonical import load_schema
from expunge.promise.certificate import BUDGET_FIELDS, Certificate, certify, describe
from expunge.promise.scope import (
    CHOSEN,
    NOT_COVERED,
    PREPROCESSING,
    SEEDED,
    UNPROTECTED,
    WITHOUT_BUDGET,
    Scope,
    assumptions_of,
)
from tests import certificates
from tests.certificates import ALL, BARE, EACH, JOINT, N_PARAMETERS, OBJECTIVE
from tests.instances import LOSSES, PENALTIES

# The fields that the design of certificates pins, and no other.
PINNED = """
    status epsilon delta sigma tau radius_budget releases n_releases n_subjects_removed
    n_subjects_added n_parameters noise_grid row_norm selection mechanism objective
    noise_source assumptions not_covered commitment version claim classes
""".split()


def valid(document: object) -> bool:
    """Return whether the shipped schema accepts the document."""
    validator = jsonschema.Draft202012Validator(load_schema("certificate"))
    return bool(validator.is_valid(document))


def readable(document: object) -> bool:
    """Return whether the library accepts the document."""
    try:
        Certificate.from_json(json.dumps(document))
    except InvalidInput:
        return False
    return True


def test_only_a_fit_has_nobody_removed_or_added() -> None:
    first = EACH.replace(n_subjects_removed=0, n_subjects_added=0)
    assert first.is_of_a_fit
    assert not first.replace(n_subjects_removed=1).is_of_a_fit
    assert not first.replace(n_subjects_added=1).is_of_a_fit


def test_fields_are_the_pinned_ones() -> None:
    assert sorted(field.name for field in fields(Certificate)) == sorted(PINNED)
    assert sorted(load_schema("certificate")["properties"]) == sorted(PINNED)
    assert sorted(load_schema("certificate")["required"]) == sorted(PINNED)


@pytest.mark.parametrize("certificate", ALL)
def test_certificates_survive_reading(certificate: Certificate) -> None:
    text = certificate.to_json()
    assert Certificate.from_json(text) == certificate
    assert Certificate.from_json(text).to_json() == text
    assert re.fullmatch("[0-9a-f]{64}", certificate.digest())
    assert valid(json.loads(text))


def test_figures_follow_from_the_budget() -> None:
    budget = Budget(epsilon=0.5, sigma=0.1, releases=12, row_norm=1.0)
    assert JOINT.radius_budget == budget.radius_budget(N_PARAMETERS)
    assert JOINT.tau == budget.solver_error(N_PARAMETERS)
    assert JOINT.noise_grid == budget.grid
    assert (JOINT.claim, JOINT.releases) == ("all releases jointly", 12)
    assert (EACH.claim, EACH.releases) == ("each release", None)
    assert (JOINT.row_norm, EACH.row_norm) == ("declared", "measured")


def test_request_log_is_counted() -> None:
    assert (EACH.n_releases, EACH.n_subjects_removed) == (2, 2)
    assert EACH.n_parameters == N_PARAMETERS


def test_without_budget_nothing_is_claimed() -> None:
    assert BARE.status == "no promise"
    assert all(getattr(BARE, name) is None for name in (*BUDGET_FIELDS, "releases"))
    assert WITHOUT_BUDGET in BARE.not_covered


@pytest.mark.parametrize(
    ("certificate", "status", "exclusions"),
    [
        (EACH, "certified", ()),
        (JOINT, "certified", ()),
        (certificates.SEEDED, "certified", (SEEDED,)),
        (certificates.UNPROTECTED, "no promise", (UNPROTECTED, SEEDED)),
        (BARE, "no promise", (WITHOUT_BUDGET,)),
        (
            certificates.certificate(
                Budget(sigma=0.1), "secure", [TunedOnData("grid search")]
            ),
            "no promise",
            (CHOSEN,),
        ),
        (certificates.CHOSEN, "certified", ()),
    ],
)
def test_status_says_why(
    certificate: Certificate, status: str, exclusions: tuple[str, ...]
) -> None:
    assert certificate.status == status
    assert certificate.assumptions == assumptions_of(certificate.selection)
    assert certificate.not_covered == (*NOT_COVERED, PREPROCESSING, *exclusions)


def test_certificate_shows_nothing_of_the_record() -> None:
    # Two removals that differ in all that is private have the same public half.
    one, other = certificates.record(1e-3), certificates.record(1e-5)
    other = replace(other, decisions=("retrained",), n_removed=99, timings={})
    account = certificates.account(Budget(sigma=0.1), "secure")
    made = [
        certify(
            account,
            OBJECTIVE,
            scope=Scope(),
            noise_source="secure",
            commitment=record.commitment(),
        )
        for record in (one, other)
    ]
    assert made[0].commitment != made[1].commitment
    assert replace(made[0], commitment=made[1].commitment) == made[1]


def test_seeded_release_before_a_secure_one_breaks_a_joint_claim() -> None:
    account = certificates.account(Budget(sigma=0.1, releases=4), "seeded")
    certificate = certify(
        account,
        OBJECTIVE,
        scope=Scope(),
        noise_source="secure",
        commitment=EACH.commitment,
    )
    assert certificate.status == "no promise"
    assert UNPROTECTED in certificate.not_covered


def test_certificate_is_of_a_release() -> None:
    with pytest.raises(InvalidInput, match="n_releases=0"):
        replace(EACH, n_releases=0)


Change = Callable[[dict[str, Any]], None]


def _set(name: str, value: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        document[name] = value

    return change


def _drop(name: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        del document[name]

    return change


MISSHAPEN: list[Change] = [
    *(_drop(name) for name in PINNED),
    *(_set(name, {"a": 1}) for name in PINNED),
    *(_set(name, True) for name in PINNED),
    *(_set(name, None) for name in PINNED if name != "releases"),
    *(_set(name, -1) for name in PINNED),
    *(_set(name, "maybe") for name in PINNED if name != "mechanism"),
    *(_set(name, 1.5) for name in ("n_releases", "n_subjects_removed", "releases")),
    _set("delta", 1.0),
    _set("sigma", 0),
    _set("releases", 0),
    _set("n_parameters", -1),
    _set("mechanism", " "),
    _set("assumptions", [""]),
    _set("objective", {"loss": {"name": "Logistic"}}),
    _set("objective", {"loss": {"name": "Logistic"}, "penalty": {"name": 2}}),
    _set("commitment", EACH.commitment.upper()),
    _set("radius", 1e-3),
]


@pytest.mark.parametrize("change", MISSHAPEN)
def test_misshapen_certificates_are_refused_by_library_and_schema(
    change: Change,
) -> None:
    document = json.loads(JOINT.to_json())
    assert readable(document)
    change(document)
    assert not readable(document)
    assert not valid(document)


@pytest.mark.parametrize("name", [*BUDGET_FIELDS, "releases"])
def test_budget_is_stated_whole_or_not_at_all(name: str) -> None:
    document = json.loads(BARE.to_json())
    document[name] = json.loads(JOINT.to_json())[name]
    assert not readable(document)
    assert not valid(document)


def test_message_names_field_and_value() -> None:
    with pytest.raises(
        InvalidInput, match="Certificate: status='sure'; it must be one"
    ):
        replace(EACH, status="sure")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="tau missing from the budget"):
        replace(EACH, tau=None)


def test_schema_validates_as_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema("certificate"))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_every_objective_is_described(loss: str, penalty: str) -> None:
    objective = Objective(LOSSES[loss][0], PENALTIES[penalty], alpha=0.5)
    described = describe(objective)
    assert described["loss"]["name"] == type(objective.loss).__name__
    assert described["penalty"]["name"] == type(objective.penalty).__name__
    names = {field.name for field in fields(objective)} - {"C"}
    assert {*described} == names | {"needs_every_class"}
    given_c = describe(replace(objective, scaling="sum", C=2.0))
    assert {*given_c} == {*described} - {"alpha"} | {"C"}
    assert replace(EACH, objective=described).to_json()


def test_description_holds_every_parameter() -> None:
    objective = Objective(
        Multinomial(3), GroupLasso([0, 1, 1]), 0.1, ridge=2.0, scaling="sum"
    )
    assert describe(objective) == {
        "loss": {"name": "Multinomial", "classes": 3},
        "penalty": {"name": "GroupLasso", "groups": [0, 1, 1]},
        "alpha": 0.1,
        "ridge": 2.0,
        "scaling": "sum",
        "intercept": False,
        "penalize_intercept": False,
        "needs_every_class": False,
    }


@dataclass(frozen=True, slots=True)
class Tilted(Logistic):
    """A loss that this library has never seen."""

    tilt: float = 0.25
    where: tuple[str, ...] = ("left",)


def test_new_loss_needs_no_edit() -> None:
    described = describe(Objective(Tilted(), L2(), alpha=1.0))["loss"]
    assert described == {"name": "Tilted", "tilt": 0.25, "where": ["left"]}


@dataclass(frozen=True, slots=True)
class Weighted(Logistic):
    """A loss with a parameter that is no plain data."""

    weights: Any = None


def test_what_cannot_be_described_is_refused() -> None:
    with pytest.raises(Unsupported, match="cannot describe ndarray"):
        describe(Objective(Weighted(weights=np.ones(2)), L2(), alpha=1.0))
