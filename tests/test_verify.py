# SPDX-License-Identifier: Apache-2.0
"""Verification: honest certificates are valid; tampering is caught or listed."""

from dataclasses import fields, replace
from math import exp, inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.promise import scope
from expunge.promise.accountant import Selection, TunedOnData
from expunge.promise.budget import Budget
from expunge.promise.certificate import Certificate
from expunge.promise.scope import (
    ASSUMPTIONS,
    CHOSEN,
    CLASS_REFUSED,
    PREPROCESSING,
    SEEDED,
    UNPROTECTED,
    WITHOUT_BUDGET,
)
from expunge.promise.scope import NOT_COVERED as ALWAYS
from expunge.promise.verification import UNDERIVED, Record, Verdict, verify
from tests import certificates
from tests.certificates import ALL, BARE, EACH, EXACT, JOINT, certificate, record

NOT_COVERED = (*ALWAYS, PREPROCESSING)
TUNED = certificate(Budget(sigma=0.1), "secure", [TunedOnData("grid search")])
LEARNT = replace(EACH, classes="learnt", not_covered=(*NOT_COVERED, CLASS_REFUSED))
FIELDS = {field.name for field in fields(Certificate)}


def caught(original: Certificate, change: dict[str, Any]) -> bool:
    """Return whether a changed certificate is refused, on reading or by verify."""
    try:
        tampered = replace(original, **change)
    except InvalidInput:
        return True
    return not verify(tampered).valid


@pytest.mark.parametrize("original", [*ALL, TUNED])
def test_honest_certificates_are_valid(original: Certificate) -> None:
    verdict = verify(original)
    assert verdict.valid
    assert verdict.findings
    assert "not that it was computed honestly" in verdict.says


# Field, tampered value, certificate: no change of these fields goes unnoticed, and no
# change of the others that leaves the listed bounds.
CAUGHT: list[tuple[Certificate, dict[str, Any]]] = [
    (EACH, {"status": "no promise"}),
    (EACH, {"status": "exact"}),
    (BARE, {"status": "exact"}),
    (TUNED, {"status": "exact"}),
    (EXACT, {"status": "certified"}),
    (EXACT, {"status": "no promise"}),
    (EXACT, {"not_covered": NOT_COVERED}),
    (EXACT, {"assumptions": EXACT.assumptions[1:]}),
    (EXACT, {"selection": "not covered"}),
    (EACH, {"not_covered": (*NOT_COVERED, scope.EXACT)}),
    (certificates.SEEDED, {"status": "no promise"}),
    (certificates.UNPROTECTED, {"status": "certified"}),
    (BARE, {"status": "certified"}),
    (TUNED, {"status": "certified"}),
    (EACH, {"claim": "all releases jointly"}),
    (EACH, {"claim": None}),
    (JOINT, {"claim": "each release"}),
    (JOINT, {"epsilon": 0.5 * (1 - 1e-9)}),
    (JOINT, {"epsilon": 0.4}),
    (JOINT, {"epsilon": 0.0}),
    (JOINT, {"epsilon": None}),
    (JOINT, {"delta": 1e-6}),
    (JOINT, {"delta": 1e-5 * (1 + 1e-9)}),
    (JOINT, {"sigma": 0.1 * (1 + 1e-9)}),
    (JOINT, {"sigma": 0.2}),
    (JOINT, {"sigma": 1e-300}),
    (JOINT, {"tau": JOINT.radius_budget}),
    (JOINT, {"tau": 1.0}),
    (JOINT, {"radius_budget": 0.1}),
    (JOINT, {"radius_budget": (JOINT.radius_budget or 0.0) * (1 + 1e-9)}),
    (JOINT, {"releases": 13}),
    (JOINT, {"releases": 11}),
    (JOINT, {"releases": None}),
    (JOINT, {"releases": 10**400}),
    (EACH, {"releases": 1}),
    (EACH, {"releases": 2}),
    (JOINT, {"n_releases": 13}),
    (JOINT, {"n_releases": 0}),
    (EACH, {"n_subjects_removed": -1}),
    (EACH, {"n_subjects_added": -1}),
    (EACH, {"n_parameters": certificates.N_PARAMETERS + 1}),
    (EACH, {"n_parameters": 1}),
    (EACH, {"n_parameters": 10**20}),
    (EACH, {"n_parameters": 10**400}),
    (EACH, {"noise_grid": 2.0**-32}),
    (EACH, {"noise_grid": 1e-9}),
    (EACH, {"noise_grid": (EACH.noise_grid or 0.0) * (1 + 1e-15)}),
    (EACH, {"noise_source": "seeded"}),
    (certificates.SEEDED, {"noise_source": "secure"}),
    (EACH, {"row_norm": "guessed"}),
    (EACH, {"selection": "not covered"}),
    (TUNED, {"selection": "none"}),
    (TUNED, {"selection": "certified"}),
    (EACH, {"mechanism": ""}),
    (EACH, {"objective": {}}),
    *((EACH, {"assumptions": ASSUMPTIONS[:i]}) for i in range(len(ASSUMPTIONS))),
    *((EACH, {"assumptions": ASSUMPTIONS[i:]}) for i in range(1, len(ASSUMPTIONS))),
    (EACH, {"not_covered": ()}),
    (EACH, {"not_covered": NOT_COVERED[1:]}),
    (EACH, {"not_covered": NOT_COVERED[:-1]}),
    (EACH, {"not_covered": ASSUMPTIONS, "assumptions": NOT_COVERED}),
    (EACH, {"not_covered": (*NOT_COVERED, CHOSEN)}),
    (EACH, {"not_covered": (*NOT_COVERED, SEEDED)}),
    (EACH, {"not_covered": (*NOT_COVERED, UNPROTECTED)}),
    (EACH, {"not_covered": (*NOT_COVERED, WITHOUT_BUDGET)}),
    (TUNED, {"not_covered": NOT_COVERED}),
    (TUNED, {"not_covered": NOT_COVERED, "status": "certified"}),
    (BARE, {"not_covered": NOT_COVERED}),
    (certificates.SEEDED, {"not_covered": NOT_COVERED}),
    (certificates.UNPROTECTED, {"not_covered": (*NOT_COVERED, SEEDED)}),
    (EACH, {"not_covered": (*NOT_COVERED, CLASS_REFUSED)}),
    (EACH, {"classes": "learnt"}),
    (EACH, {"classes": "guessed"}),
    (EACH, {"commitment": "0"}),
    (EACH, {"version": 2}),
    (EACH, {"selection": "certified"}),
    (certificates.CHOSEN, {"assumptions": ASSUMPTIONS}),
    (certificates.CHOSEN, {"selection": "noised"}),
]

# One change of each listed field that nothing in the certificate contradicts.
UNCAUGHT: list[tuple[Certificate, dict[str, Any]]] = [
    (EACH, {"n_subjects_removed": 0}),
    (EACH, {"n_subjects_added": 3}),
    (EACH, {"n_releases": 1}),
    (JOINT, {"n_releases": 12}),
    (EACH, {"tau": 0.5 * (EACH.tau or 0.0)}),
    (EACH, {"row_norm": "declared"}),
    (EACH, {"selection": "none"}),
    (certificates.CHOSEN, {"selection": "recomputed"}),
    (EACH, {"mechanism": "jackknife"}),
    (EACH, {"objective": {"loss": {"name": "x"}, "penalty": {"name": "y"}}}),
    (EACH, {"assumptions": (*ASSUMPTIONS, "rows are independent")}),
    (EACH, {"not_covered": (*NOT_COVERED, "features bought elsewhere")}),
    (LEARNT, {"classes": "declared"}),
    (EACH, {"commitment": "0" * 64}),
]


@pytest.mark.parametrize(("original", "change"), CAUGHT)
def test_tampering_is_caught(original: Certificate, change: dict[str, Any]) -> None:
    assert caught(original, change)


@pytest.mark.parametrize(("original", "change"), UNCAUGHT)
def test_listed_fields_follow_from_nothing(
    original: Certificate, change: dict[str, Any]
) -> None:
    assert replace(original, **change) != original
    assert not caught(original, change)


def test_every_field_is_tampered_with() -> None:
    assert {name for _, change in CAUGHT for name in change} == FIELDS
    assert {name for _, change in UNCAUGHT for name in change} == set(UNDERIVED)


FIGURES = sorted(
    {"epsilon", "delta", "sigma", "radius_budget", "noise_grid"} - set(UNDERIVED)
)


@given(
    st.sampled_from(FIGURES),
    st.sampled_from([EACH, JOINT]),
    st.floats(1e-9, 1e9).filter(lambda factor: abs(factor - 1.0) > 1e-9),
)
def test_no_figure_can_be_scaled(
    name: str, original: Certificate, factor: float
) -> None:
    assert caught(original, {name: factor * getattr(original, name)})


@given(st.integers(1, 10**6), st.integers(1, 10**5))
def test_sizes_cannot_be_changed(releases: int, n_parameters: int) -> None:
    assert caught(JOINT, {"releases": releases}) == (releases != JOINT.releases)
    assert caught(EACH, {"n_parameters": n_parameters}) == (
        n_parameters != EACH.n_parameters
    )


def test_record_opens_the_commitment() -> None:
    verdict = verify(EACH, record())
    assert verdict.valid
    assert "the record is the one committed to" in verdict.findings
    assert "does not show that the record was computed honestly" in verdict.says
    other = verify(EACH, record(1e-4))
    assert other.failures == (
        "the record is not the one that the certificate commits to",
    )


def with_record(original: Certificate, kept: Record) -> Verdict:
    return verify(replace(original, commitment=kept.commitment()), kept)


def test_radius_and_tau_must_fit_the_budget() -> None:
    assert EACH.radius_budget is not None
    assert EACH.tau is not None
    room = EACH.radius_budget - EACH.tau
    assert with_record(EACH, record(room * (1 - 1e-12))).valid
    for radius in (room * (1 + 1e-9), inf):
        verdict = with_record(EACH, record(radius))
        assert not verdict.valid
        assert "exceed the radius budget" in verdict.says
    assert with_record(BARE, record(inf)).valid  # no budget to fit


def test_record_of_an_exact_result_has_no_radius() -> None:
    kept = replace(record(0.0), radius_kind="exact")
    assert with_record(EXACT, kept).valid
    assert "the record's radius is zero" in with_record(EXACT, kept).findings
    for radius in (5e-324, inf):
        verdict = with_record(EXACT, replace(kept, radius=radius))
        assert verdict.failures == ("the record's radius is not zero",)
    assert "To the last bit, this release is" in verify(EXACT).says


@given(st.floats(0.0, 50.0), st.floats(0.0, 1.0, exclude_max=True))
def test_limit_is_that_of_the_best_guess(epsilon: float, delta: float) -> None:
    """The extreme pair of (epsilon, delta): no other pair is told apart as often."""
    said = scope.state_limit(epsilon, delta)
    limit = float(said.removeprefix("right at most ").partition(" ")[0])
    surely, rest = delta, 1.0 - delta
    more, less = rest / (1.0 + exp(-epsilon)), rest / (1.0 + exp(epsilon))
    right = (surely + more + surely + more) / 2.0
    assert surely + more + less == pytest.approx(1.0)
    assert 100.0 * right <= limit <= 100.0 * right + 0.1 + 1e-9


ALPHA = certificates.OBJECTIVE.alpha


@pytest.mark.parametrize(
    ("choice", "valid"),
    [
        (((ALPHA, 0.1, 0.2), (1.0, 0.3, 0.4), (2.0, 0.21, None)), True),
        (((ALPHA, 0.1, 0.2),), True),  # one candidate needs no proof
        ((), False),
        (((1.0, 0.1, 0.2), (ALPHA, 0.3, 0.4)), False),  # another alpha was proved
        (((ALPHA, 0.1, 0.3), (1.0, 0.3, 0.4)), False),
        (((ALPHA, 0.1, None), (1.0, 0.3, 0.4)), False),
        (((ALPHA, 0.3, 0.4), (1.0, 0.1, 0.2)), False),
    ],
)
def test_record_must_prove_a_certified_choice(
    choice: tuple[tuple[float, float, float | None], ...], valid: bool
) -> None:
    kept = replace(record(), choice=choice, selection="certified")
    assert with_record(certificates.CHOSEN, kept).valid is valid


@pytest.mark.parametrize("said", ["not known", "none", "certified", "recomputed"])
@pytest.mark.parametrize("true", ["not known", "none", "certified", "recomputed"])
def test_record_knows_how_the_choice_was_made(said: Selection, true: Selection) -> None:
    made: dict[Selection, Certificate] = {
        "not known": EACH,
        "none": replace(EACH, selection="none"),
        "certified": certificates.CHOSEN,
        "recomputed": replace(certificates.CHOSEN, selection="recomputed"),
    }
    choice = ((ALPHA, 0.1, 0.2), (1.0, 0.3, 0.4))
    kept = replace(record(), choice=choice, selection=true)
    assert with_record(made[said], kept).valid is (said == true)
    assert with_record(TUNED, kept).valid  # to claim less is always allowed


def test_recomputed_radius_must_not_exceed_the_record() -> None:
    assert verify(EACH, record(), radius=1e-3).valid
    assert verify(EACH, record(), radius=1e-3 * (1 + 1e-10)).valid
    assert verify(EACH, record(), radius=1e-4).valid
    for radius in (1e-3 * (1 + 1e-8), inf, nan):
        verdict = verify(EACH, record(), radius=radius)
        assert verdict.failures == ("the recomputed radius exceeds the record's",)
    shown = verify(EACH, record(), radius=1e-3).says
    assert "does not show that the released model" in shown
    with pytest.raises(InvalidInput, match="pass the record too"):
        verify(EACH, radius=1e-3)


def test_other_things_than_certificates_are_refused() -> None:
    wrong: dict[str, Any] = {
        "got None; pass certificate_ of a fitted model": (None,),
        "got an object of type str; .*from_json": (EACH.to_json(),),
        "got an object of type Record": (record(),),
        "record is an object of type str; pass a Record": (EACH, "record"),
        "record is an object of type Certificate": (EACH, EACH),
    }
    for said, things in wrong.items():
        with pytest.raises(InvalidInput, match=said):
            verify(*things)
    radius: Any = "0.1"
    with pytest.raises(InvalidInput, match="radius is an object of type str"):
        verify(EACH, record(), radius=radius)


def test_verdict_speaks_plainly() -> None:
    assert (
        "is right at most 73.2 % of the time after seeing it (epsilon 1,"
        in verify(EACH).says
    )
    assert "all 12 releases are what retraining" in verify(JOINT).says
    assert "Nothing is promised: there is no budget" in verify(BARE).says
    assert "Nothing is promised: a choice was made" in verify(TUNED).says
    broken = verify(replace(JOINT, epsilon=0.4))
    assert broken.says.startswith("The certificate is not valid: radius_budget is")


def test_verdict_quotes_nothing_of_the_record() -> None:
    kept = record(0.123456)
    for original in (EACH, JOINT, replace(EACH, commitment=kept.commitment())):
        assert "123456" not in repr(verify(original, kept, radius=0.987))
