# SPDX-License-Identifier: Apache-2.0
"""Where each right moves rows, what becomes of it, and what a batch comes to."""

import json
from collections.abc import Mapping, Sequence
from itertools import combinations, count
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import pytest

from expunge.exceptions import InvalidInput
from expunge.ledger.receipts import list_destroyed
from expunge.registry import RequestStatus
from expunge.registry.changes import sort_moves
from expunge.registry.settle import (
    Rows,
    Settlement,
    settle,
)
from expunge.registry.storage.people_table import PersonRows
from expunge.rights.standing import (
    BY_OPERATOR,
    DONE,
    FOR_HOLDS,
    MOVES,
    NOTHING_FOUND,
    OUTCOMES,
    REASONS,
    RIGHTS,
    Judgement,
    Place,
    Right,
    forgets,
    join_judgements,
    judge,
    move_rows,
    require_right,
)
from tests.registries import status_of

PLACES: tuple[Place, ...] = get_args(Place)
# Where a right moves rows that are in use, restricted, held and gone.
WHERE: Mapping[Right, tuple[Place, ...]] = {
    "erase": ("gone", "gone", "held", "gone"),
    "object": ("gone", "gone", "held", "gone"),
    "restrict": ("restricted", "restricted", "held", "gone"),
    "lift": ("in use", "in use", "held", "gone"),
    "hold": ("held", "held", "held", "gone"),
    "end-hold": ("in use", "restricted", "gone", "gone"),
    "rectify": ("in use", "restricted", "held", "gone"),
}
HELD = "hold"
PARTLY, REFUSED = Judgement("partly", HELD), Judgement("refused", HELD)
NOT_RESTRICTED = Judgement("refused", "not-restricted")
NOT_HELD = Judgement("refused", "not-held")
# What becomes of it for rows in use, restricted and held alone.
ALONE: Mapping[Right, tuple[Judgement, Judgement, Judgement]] = {
    "erase": (DONE, DONE, PARTLY),
    "object": (DONE, DONE, PARTLY),
    "restrict": (DONE, DONE, DONE),
    "lift": (NOT_RESTRICTED, DONE, REFUSED),
    "hold": (DONE, DONE, DONE),
    "end-hold": (NOT_HELD, NOT_HELD, DONE),
    "rectify": (DONE, DONE, REFUSED),
}
# Of several at once: in use and restricted, in use and held, restricted and held, all.
TOGETHER: Mapping[Right, tuple[Judgement, Judgement, Judgement, Judgement]] = {
    "erase": (DONE, PARTLY, PARTLY, PARTLY),
    "object": (DONE, PARTLY, PARTLY, PARTLY),
    "restrict": (DONE, DONE, DONE, DONE),
    "lift": (DONE, REFUSED, DONE, DONE),
    "hold": (DONE, DONE, DONE, DONE),
    "end-hold": (NOT_HELD, DONE, DONE, DONE),
    "rectify": (DONE, PARTLY, PARTLY, PARTLY),
}


class TestTable:
    def test_says_something_of_every_right(self) -> None:
        assert {*WHERE} == {*ALONE} == {*TOGETHER} == {*MOVES} == {*RIGHTS}

    @pytest.mark.parametrize("right", RIGHTS)
    def test_rows_move(self, right: Right) -> None:
        assert tuple(move_rows(right, place) for place in PLACES) == WHERE[right]

    @pytest.mark.parametrize("right", RIGHTS)
    def test_is_judged_by_where_rows_were(self, right: Right) -> None:
        *there, gone = PLACES
        assert tuple(judge(right, [place]) for place in there) == ALONE[right]
        several = [*combinations(there, 2), tuple(there)]
        assert tuple(judge(right, places) for places in several) == TOGETHER[right]
        assert judge(right, []) == judge(right, [gone, gone]) == NOTHING_FOUND
        for places in several:
            assert judge(right, [*places, gone]) == judge(right, places)

    @pytest.mark.parametrize("right", RIGHTS)
    def test_rows_that_are_gone_stay_gone(self, right: Right) -> None:
        assert move_rows(right, "gone") == "gone"

    @pytest.mark.parametrize("right", [one for one in RIGHTS if one != "end-hold"])
    def test_held_rows_leave_by_the_end_of_the_hold_alone(self, right: Right) -> None:
        assert move_rows(right, "held") == "held"

    def test_only_a_lift_brings_rows_into_use(self) -> None:
        into = {
            (right, place)
            for right in RIGHTS
            for place in PLACES
            if place != "in use" and move_rows(right, place) == "in use"
        }
        assert into == {("lift", "restricted")}

    @pytest.mark.parametrize("word", ["", "Erase", "forget", None, 3, ["erase"]])
    def test_other_words_are_refused(self, word: object) -> None:
        with pytest.raises(InvalidInput, match="give one of erase, "):
            require_right(word)

    def test_a_person_is_forgotten_once_nothing_is_kept(self) -> None:
        found = {
            (right, outcome)
            for right in RIGHTS
            for outcome in OUTCOMES
            if forgets(right, outcome)
        }
        assert found == {
            (right, outcome)
            for right in ("erase", "object", "end-hold")
            for outcome in ("done", "nothing found")
        }

    def test_reasons_are_words_of_the_law_and_of_nobody(self) -> None:
        assert all(REASONS[code] for code in REASONS if code)
        assert {*FOR_HOLDS} < {*BY_OPERATOR} < {*REASONS}
        given = {one.reason for judged in ALONE.values() for one in judged}
        assert given.isdisjoint({*BY_OPERATOR}) and given <= {*REASONS}


class TestJoining:
    @pytest.mark.parametrize(
        ("judged", "joined"),
        [
            ([], NOTHING_FOUND),
            ([NOTHING_FOUND, NOTHING_FOUND], NOTHING_FOUND),
            ([NOTHING_FOUND, DONE], DONE),
            ([DONE, DONE], DONE),
            ([DONE, REFUSED], Judgement("partly", HELD)),
            ([DONE, PARTLY, NOTHING_FOUND], PARTLY),
            ([REFUSED, REFUSED], REFUSED),
            ([NOT_RESTRICTED, REFUSED], Judgement("refused", "not-restricted")),
        ],
    )
    def test_of_several_people(
        self, judged: list[Judgement], joined: Judgement
    ) -> None:
        assert join_judgements(judged) == joined


def destroyed(
    right: str, outcome: str, *, changed: bool, reason: str = ""
) -> tuple[str, ...]:
    return list_destroyed(right, outcome, reason=reason, changed=changed)


class TestDestroyed:
    """What a receipt calls destroyed must be: it may say less, never more."""

    OF_ROWS = ("rows", "keys of rows")
    OF_MODELS = ("private states", "parameters of superseded releases")

    @pytest.mark.parametrize("right", RIGHTS)
    @pytest.mark.parametrize("outcome", ["nothing found", "refused"])
    def test_nothing_by_a_request_that_did_nothing(
        self, right: Right, outcome: str
    ) -> None:
        assert destroyed(right, outcome, changed=False) == ()

    @pytest.mark.parametrize("right", ["erase", "object"])
    def test_nothing_of_rows_that_are_all_held(self, right: Right) -> None:
        assert destroyed(right, "partly", changed=False) == ()
        both = (*self.OF_ROWS, *self.OF_MODELS)
        assert destroyed(right, "partly", changed=True) == both

    def test_of_what_is_sealed_apart(self) -> None:
        assert destroyed("end-hold", "done", changed=False) == self.OF_ROWS
        assert destroyed("end-hold", "partly", changed=False) == self.OF_ROWS
        assert destroyed("erase", "done", changed=False) == self.OF_ROWS

    def test_of_rows_that_cannot_come_back(self) -> None:
        stale = destroyed("lift", "partly", reason="fitted-again", changed=False)
        assert stale == self.OF_ROWS

    @pytest.mark.parametrize("right", ["restrict", "lift", "hold"])
    def test_nothing_of_rows_that_are_kept(self, right: Right) -> None:
        assert destroyed(right, "done", changed=True) == self.OF_MODELS


IN_M = {"m": "in use"}
_NUMBERS = count(1)


def used(*models: str, who: int = 1, fit: int = 1) -> list[PersonRows]:
    """Return the rows of a person whom these models use."""
    return [
        PersonRows(next(_NUMBERS), model, who, f"tag {who}", fit) for model in models
    ]


def apart(
    place: Place, *models: str, fit: int = 1, until: str = ""
) -> list[PersonRows]:
    """Return the rows of a person that are set aside."""
    why = "research" if until else ""
    return [
        PersonRows(next(_NUMBERS), model, 1, "tag 1", fit, place, "earlier", why, until)
        for model in models
    ]


class Asked(NamedTuple):
    """A request, with the people it is about and the rows that it brings."""

    one: RequestStatus
    who: Sequence[int]
    new_rows: Mapping[str, bytes]


def asked(
    right: Right,
    id_: str = "a",
    who: Sequence[int] = (1,),
    new_rows: Mapping[str, bytes] = MappingProxyType({}),
    details: Mapping[str, object] = MappingProxyType({}),
) -> Asked:
    if right == "hold":
        details = {"reason": "legal-claims", "until": "2030-01-31"}
    one = status_of(id_, right=right, details=json.dumps({**details}))
    return Asked(one, who, new_rows)


def settle_all(
    asked: Sequence[Asked], held: Mapping[int, Rows], **options: Any
) -> Settlement:
    return settle(
        [each.one for each in asked],
        held,
        people={each.one.request: each.who for each in asked},
        new_rows={each.one.request: each.new_rows for each in asked},
        **options,
    )


def settled(*asked: Asked, held: Rows, **options: Any) -> Settlement:
    given: dict[str, Any] = {"fits": {"m": 1, "n": 1}, "spent": ()} | options
    return settle_all(asked, {1: held}, **given)


def places(settlement: Settlement, who: int = 1) -> dict[str, str]:
    """Return where rows are, by model; "~" stands before it if they are apart."""
    return {
        one.model if one.place == "in use" else f"~{one.model}": one.place
        for one in settlement.after[who]
    }


def rows_at(settlement: Settlement, name: str) -> list[PersonRows]:
    """Return the rows of the first person under such a name."""
    apart, model = name.startswith("~"), name.removeprefix("~")
    return [
        one
        for one in settlement.after[1]
        if one.model == model and (one.place != "in use") == apart
    ]


class TestSettling:
    @pytest.mark.parametrize("right", RIGHTS)
    def test_one_request_moves_rows_by_the_table(self, right: Right) -> None:
        new = {"m": b"new", "n": b"new"} if right == "rectify" else {}
        starts: dict[Place, Rows] = {
            "in use": used("m"),
            "restricted": apart("restricted", "m"),
            "held": apart("held", "m", until="2029-01-01"),
        }
        for place, start in starts.items():
            found = settled(asked(right, new_rows=new), held=start)
            end = move_rows(right, place)
            names = {"gone": None, "in use": "m"}
            name = names.get(end, "~m")
            assert places(found) == ({name: end} if name else {})
            assert found.judgements["a"] == judge(right, [place])

    def test_models_are_those_whose_rows_in_use_change(self) -> None:
        held = used("m") + apart("restricted", "n")
        assert settled(asked("erase"), held=held).models == {"a": {"m"}}
        assert settled(asked("lift"), held=held).models == {"a": {"n"}}
        assert settled(asked("restrict"), held=held).models == {"a": {"m"}}

    def test_nobody_known_is_nothing_held(self) -> None:
        found = settled(asked("erase", who=()), held=[])
        assert found.judgements == {"a": NOTHING_FOUND} and found.models == {"a": set()}
        assert found.retained == {"a": ("", "")} and not sort_moves(found)

    def test_restrict_and_lift_in_one_batch_change_nothing(self) -> None:
        found = settled(asked("restrict", "a"), asked("lift", "b"), held=used("m", "n"))
        assert found.judgements == {"a": DONE, "b": DONE}
        assert places(found) == {"m": "in use", "n": "in use"}
        assert sort_moves(found) == {}  # no model is released, no row is sealed

    def test_order_decides(self) -> None:
        lift_first = settled(asked("lift", "a"), asked("restrict", "b"), held=used("m"))
        assert lift_first.judgements == {"a": NOT_RESTRICTED, "b": DONE}
        assert places(lift_first) == {"~m": "restricted"}
        hold_first = settled(asked("hold", "a"), asked("erase", "b"), held=used("m"))
        assert hold_first.judgements == {"a": DONE, "b": PARTLY}
        assert hold_first.models == {"a": {"m"}, "b": set()}
        assert places(hold_first) == {"~m": "held"}
        erase_first = settled(asked("erase", "a"), asked("hold", "b"), held=used("m"))
        assert erase_first.judgements == {"a": DONE, "b": NOTHING_FOUND}
        assert places(erase_first) == {}

    def test_what_is_kept_and_until_when(self) -> None:
        found = settled(
            asked("restrict", "a"),
            asked("hold", "b"),
            asked("erase", "c"),
            asked("end-hold", "d"),
            held=used("m"),
        )
        kept = ("legal-claims", "2030-01-31")
        assert found.retained == {
            "a": ("restriction", ""),
            "b": kept,
            "c": kept,
            "d": ("", ""),
        }

    def test_a_later_end_counts_before_an_earlier_one(self) -> None:
        held = apart("held", "m", until="2029-01-01") + used("n")
        found = settled(asked("hold"), asked("erase", "b"), held=held)
        assert found.retained["b"] == ("legal-claims", "2030-01-31")

    def test_a_hold_on_held_rows_sets_another_end(self) -> None:
        held = apart("held", "m", until="2029-01-01")
        found = settled(asked("hold"), held=held)
        (one,) = rows_at(found, "~m")
        assert (one.until, one.key) == ("2030-01-31", held[0].key)

    def test_a_lift_after_another_fit_cannot_put_rows_back(self) -> None:
        held = apart("restricted", "m", "n")
        found = settled(asked("lift"), held=held, fits={"m": 1, "n": 2})
        assert found.judgements == {"a": Judgement("partly", "fitted-again")}
        assert places(found) == {"m": "in use"}

    def test_a_lift_of_a_model_that_is_gone(self) -> None:
        found = settled(asked("lift"), held=apart("restricted", "m"), fits={})
        assert found.judgements == {"a": Judgement("partly", "fitted-again")}
        assert places(found) == {}

    def test_rows_of_two_fits_are_kept_together(self) -> None:
        held = apart("restricted", "m", fit=1) + used("m", fit=2)
        found = settled(asked("restrict"), held=held, fits={"m": 2})
        assert [one.fit for one in rows_at(found, "~m")] == [1, 2]
        back = settled(asked("restrict"), asked("lift", "b"), held=held, fits={"m": 2})
        assert [one.fit for one in back.after[1]] == [2] and places(back) == IN_M
        assert back.judgements["b"] == DONE

    def test_rows_that_join_held_ones_are_held(self) -> None:
        held = apart("held", "m", until="2029-01-01") + used("m")
        found = settled(asked("restrict"), held=held, fits={"m": 2})
        assert places(found) == {"~m": "held"}
        assert {one.until for one in rows_at(found, "~m")} == {"2029-01-01"}
        assert found.judgements == {"a": DONE}

    def test_several_people_each_by_their_own_rows(self) -> None:
        held = {1: used("m"), 2: apart("held", "m", until="2029-01-01")}
        found = settle_all([asked("erase", who=(1, 2))], held, fits={"m": 1}, spent=())
        assert found.judgements == {"a": PARTLY}
        assert found.after == {1: [], 2: held[2]}


class TestRectifying:
    def test_rows_in_use_are_replaced(self) -> None:
        found = settled(asked("rectify", new_rows={"m": b"new"}), held=used("m", "n"))
        assert [one.new for one in rows_at(found, "m")] == [b"new"]
        assert rows_at(found, "n") == [found.before[1][1]]
        assert found.models == {"a": {"m"}} and found.judgements == {"a": DONE}

    def test_restricted_rows_are_replaced_and_stay_sealed(self) -> None:
        found = settled(
            asked("rectify", new_rows={"m": b"new"}), held=apart("restricted", "m")
        )
        assert places(found) == {"~m": "restricted"}
        assert [one.new for one in rows_at(found, "~m")] == [b"new"]
        assert found.models == {"a": set()}
        assert found.retained == {"a": ("restriction", "")}

    def test_held_rows_stay_as_they_are(self) -> None:
        held = apart("held", "m", until="2029-01-01") + used("n")
        new = {"m": b"new", "n": b"new"}
        found = settled(asked("rectify", new_rows=new), held=held)
        assert found.judgements == {"a": PARTLY}
        assert rows_at(found, "~m") == held[:1]
        assert [one.new for one in rows_at(found, "n")] == [b"new"]

    def test_a_model_that_it_does_not_name_is_not_judged(self) -> None:
        held = apart("held", "m", until="2029-01-01") + used("n")
        found = settled(asked("rectify", new_rows={"n": b"new"}), held=held)
        assert found.judgements == {"a": DONE}

    def test_rows_that_are_lost_are_not_replaced_by_anything(self) -> None:
        found = settled(asked("rectify", new_rows={"m": b""}), held=used("m"))
        assert places(found) == {}


class TestStuck:
    def test_a_model_that_may_not_be_released_holds_up_its_person(self) -> None:
        found = settle_all(
            [
                asked("erase", "a"),
                asked("restrict", "b"),
                asked("erase", "c", who=(2,)),
            ],
            {1: used("m"), 2: used("n", who=2)},
            fits={"m": 1, "n": 1},
            spent=("m",),
        )
        assert found.stuck == {"a": "m", "b": "m"}
        assert {*found.judgements} == {"c"}
        assert places(found) == {"m": "in use"} and places(found, 2) == {}

    def test_all_of_a_request_waits_and_what_comes_after_it(self) -> None:
        held = {1: used("m"), 2: used("n", who=2)}
        found = settle_all(
            [asked("erase", "a", who=(1, 2)), asked("restrict", "b", who=(2,))],
            held,
            fits={"m": 1, "n": 1},
            spent=("m",),
        )
        # Otherwise the restriction would overtake an erasure of the same person.
        assert found.stuck == {"a": "m", "b": "m"}
        assert found.after == held

    def test_what_needs_no_release_goes_on(self) -> None:
        held = apart("restricted", "m")
        for right in ("erase", "hold", "restrict", "object"):
            found = settled(asked(right), held=held, spent=("m",))
            assert not found.stuck and found.judgements == {"a": DONE}
        assert settled(asked("lift"), held=held, spent=("m",)).stuck == {"a": "m"}

    def test_who_is_behind_an_earlier_request_waits(self) -> None:
        found = settled(asked("restrict"), held=used("m"), behind={1: {"lift"}})
        assert found.stuck == {"a": ""} and not found.judgements
        assert places(found) == {"m": "in use"}

    @pytest.mark.parametrize("right", ["erase", "object"])
    def test_an_erasure_waits_for_a_hold_alone(self, right: Right) -> None:
        for earlier in RIGHTS:
            behind = {1: {"erase", earlier}}
            found = settled(asked(right), held=used("m"), behind=behind)
            assert bool(found.stuck) == (earlier == "hold")
            assert places(found) == ({"m": "in use"} if found.stuck else {})


def test_nothing_is_said_of_rows_in_use() -> None:
    (one,) = used("m")
    assert one.said == ("in use", "", "", "")
    assert "tag" not in repr(used("m")) and "tag" not in repr(one)
