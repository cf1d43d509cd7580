# SPDX-License-Identifier: Apache-2.0
"""Requests over HTTP: sent, shown, listed, cancelled; and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expunge.ledger import check_receipt
from expunge.registry import Registry
from expunge.rights import Identifier
from tests.registries import now, run_clock, today

from .calling import call
from .services import InProcess, serve_in_process

ID = "0123456789abcdef0123456789abcdef"
REQUESTS = "/api/v1/requests"
ONE = f"{REQUESTS}/{ID}"
WINDOW = 900_000


@pytest.fixture
def service(sqlite_registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(sqlite_registry) as running:
        yield running


class Clock:
    """Time as the service sees it, to be moved on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        start = now()
        self.time = start - start % WINDOW + WINDOW // 2
        run_clock(monkeypatch, lambda: self.time)

    def pass_window(self, service: InProcess) -> None:
        """Let the window close and its requests be applied and shown."""
        close = self.time - self.time % WINDOW + WINDOW
        self.time = close + 1
        service.registry.requests.apply(before=close)
        self.time = close + WINDOW // 10


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def send(service: InProcess, scope: str = "request", **fields: Any) -> Any:
    body = {"people": [{"id": "person 3"}], **fields}
    return service.call("POST", REQUESTS, scope, json=body)


def test_a_request_goes_its_way(service: InProcess, clock: Clock) -> None:
    answer = send(service, id=ID)
    assert answer.status_code == 201, answer.text
    assert answer.headers["Location"] == ONE
    assert answer.headers["Cache-Control"] == "no-store"
    found = service.call("GET", ONE, "request")
    assert found.json() == answer.json()
    assert found.json()["state"] == "pending"
    assert service.call("GET", f"{ONE}/receipt", "request").status_code == 404
    clock.pass_window(service)
    done = service.call("GET", ONE, "request").json()
    assert (done["state"], done["outcome"]) == ("completed", "done")
    receipt = service.call("GET", f"{ONE}/receipt", "request")
    keys = service.http.get("/api/v1/keys").text
    assert check_receipt(receipt.content, keys).valid
    assert service.registry.requests.find_models(["person 3"]) == {"person 3": ()}


def test_what_was_decided_early_is_shown_at_the_end(
    service: InProcess, clock: Clock
) -> None:
    send(service, id=ID)
    before = service.call("GET", ONE, "request").json()
    refusal = {"reason": "unfounded"}
    assert service.call("POST", f"{ONE}/refuse", "operate", json=refusal).is_success
    assert service.call("GET", ONE, "request").json() == before
    clock.pass_window(service)
    assert service.call("GET", ONE, "request").json()["outcome"] == "refused"


def test_sending_again_changes_nothing(service: InProcess, clock: Clock) -> None:
    first = send(service, id=ID)
    clock.time += 5000
    again = send(service, id=ID)
    assert (again.status_code, again.json()) == (201, first.json())
    other = send(service, id=ID, right="restrict")
    assert other.status_code == 409
    assert other.headers["Content-Type"] == "application/problem+json"
    assert send(service, "operate", id=ID).status_code == 409


def test_known_and_unknown_people_get_the_same_answer(
    service: InProcess, clock: Clock
) -> None:
    service.registry.aliases.add([("person 9", Identifier("email", "ada@example.org"))])
    answers = []
    named = [
        {"id": "person 5"},
        {"id": "nobody"},
        {"email": "ada@example.org"},
        {"email": "eve@example.org"},
        {"email": "ada@example.org", "phone": "+3212345678"},
    ]
    for number, person in enumerate(named):
        answer = send(service, id=f"{number:032x}", people=[person])
        shown = answer.json()
        assert shown.pop("id") == f"{number:032x}"
        headers = {k: v for k, v in answer.headers.items() if k != "x-request-id"}
        headers["location"] = headers["location"][:20]
        answers.append((answer.status_code, shown, headers))
    assert all(one == answers[0] for one in answers)
    clock.pass_window(service)
    outcomes = [
        service.call("GET", f"{REQUESTS}/{number:032x}", "request").json()["outcome"]
        for number in range(5)
    ]
    assert outcomes == [
        "done",
        "nothing found",
        "done",
        "nothing found",
        "nothing found",
    ]


def test_people_are_counted_as_they_were_asked_for(service: InProcess) -> None:
    people = [{"email": "a@example.org", "phone": "+3212345678"}, {"id": "nobody"}]
    assert send(service, people=people).json()["n_people"] == 2


def test_a_pending_request_can_be_cancelled(service: InProcess, clock: Clock) -> None:
    send(service, id=ID)
    for _ in range(2):
        answer = service.call("DELETE", ONE, "request")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    clock.pass_window(service)
    assert service.call("GET", ONE, "request").json()["state"] == "cancelled"
    assert service.registry.requests.find_models(["person 3"])["person 3"]


def test_a_request_whose_window_closed_cannot_be_cancelled(
    service: InProcess, clock: Clock
) -> None:
    send(service, id=ID)
    clock.time += WINDOW
    answer = service.call("DELETE", ONE, "request")
    assert answer.status_code == 409
    clock.pass_window(service)
    assert service.call("DELETE", ONE, "request").status_code == 409


def test_a_sender_sees_only_its_own(service: InProcess) -> None:
    send(service, "operate", id=ID)
    missing = service.call("GET", ONE, "request")
    assert missing.status_code == 404
    never = service.call("GET", f"{REQUESTS}/{'f' * 32}", "request")
    assert never.json()["detail"].replace("f" * 32, ID) == missing.json()["detail"]
    assert service.call("DELETE", ONE, "request").status_code == 404
    assert service.call("GET", REQUESTS, "request").json()["requests"] == []
    for scope in ("operate", "audit", "admin"):
        assert service.call("GET", ONE, scope).status_code == 200
        assert len(service.call("GET", REQUESTS, scope).json()["requests"]) == 1


def test_requests_are_listed_in_pages_by_deadline(service: InProcess) -> None:
    days = ["2026-03-05", "2026-03-01", "2026-03-03", "2026-03-01"]
    for number, day in enumerate(days):
        send(service, id=f"{number:032x}", submitted=day)
    found, cursor = [], ""
    while cursor is not None:
        query = f"{REQUESTS}?limit=3" + (f"&cursor={cursor}" if cursor else "")
        page = service.call("GET", query, "request").json()
        found += [(one["deadline"], one["id"]) for one in page["requests"]]
        cursor = page["next"]
    assert found == sorted(found) and len(found) == 4
    due = service.call("GET", f"{REQUESTS}?due=2026-04-01", "request").json()
    assert len(due["requests"]) == 2
    send(service, id=f"{4:032x}")  # due in a month, unlike those of long ago
    soon = service.call("GET", f"{REQUESTS}?due=1w", "request").json()
    assert len(soon["requests"]) == 4
    none = service.call("GET", f"{REQUESTS}?state=cancelled", "request").json()
    assert none["requests"] == []


def test_an_unchanged_request_is_not_sent_again(
    service: InProcess, clock: Clock
) -> None:
    send(service, id=ID)
    tag = service.call("GET", ONE, "request").headers["ETag"]
    known = {"If-None-Match": tag}
    assert service.call("GET", ONE, "request", headers=known).status_code == 304
    clock.pass_window(service)
    assert service.call("GET", ONE, "request", headers=known).status_code == 200


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-ndjson", '{"people":[{"id":"person 1"}]}\n'),
        ("text/csv", "right,person\nerase,person 1\n"),
        ("text/csv; charset=utf-8", "\ufeffperson,email\n,a@example.org\n"),
    ],
)
def test_batches(service: InProcess, kind: str, body: str) -> None:
    answer = service.call(
        "POST",
        f"{REQUESTS}/batch",
        "request",
        content=body.encode(),
        headers={"Content-Type": kind},
    )
    assert answer.status_code == 201, answer.text
    assert len(answer.json()["requests"]) == 1


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[]",
        "{}",
        '{"people": []}',
        '{"people": [{"id": ""}]}',
        '{"people": [{"email": "no address"}]}',
        '{"people": [{"id": "x"}], "right": "other"}',
        '{"people": [{"id": "x"}], "canary@example.org": 1}',
        '{"people": [{"canary@example.org": "x"}]}',
    ],
)
def test_one_bad_line_refuses_a_batch(service: InProcess, line: str) -> None:
    good = json.dumps({"people": [{"id": "person 1"}]})
    answer = service.call(
        "POST",
        f"{REQUESTS}/batch",
        "request",
        content=f"{good}\n{line}\n".encode(),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert answer.status_code == 422
    assert "canary" not in answer.text
    assert service.registry.status().n_requests == 0


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"right": "canary"}, "body.right", "it must be 'erase', "),
        ({"people": ["canary"]}, "body.people.0", "it must be a JSON object"),
        ({"id": "canary"}, "body.id", "it must match ^[0-9a-f]{32}$"),
        ({"submitted": "canary"}, "body.submitted", "it must be a day such as"),
        ({"canary": 1}, "body", "it has a field that does not exist"),
    ],
)
def test_a_refusal_says_what_a_field_must_be(
    service: InProcess, fields: dict[str, Any], field: str, reason: str
) -> None:
    answer = send(service, **fields)
    assert answer.status_code == 422 and "canary" not in answer.text
    (error,) = answer.json()["errors"]
    assert error["field"] == field and error["reason"].startswith(reason)


def test_a_body_of_no_type_is_told_which_it_must_be(service: InProcess) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl -d has it
    body = json.dumps({"people": [{"id": "canary"}]}).encode()
    answer = service.call("POST", REQUESTS, "request", content=body, headers=form)
    assert "application/json" in answer.text and "canary" not in answer.text


def test_a_rectification_brings_rows(service: InProcess, clock: Clock) -> None:
    rows = {"all": {"X": [[0.5, 0.1, 0.2, -0.3]], "y": [1]}}
    answer = send(service, id=ID, right="rectify", rows=rows)
    assert answer.status_code == 201, answer.text
    clock.pass_window(service)
    assert service.call("GET", ONE, "request").json()["outcome"] == "done"


BESIDE: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "exposure": (("--loss", "poisson", "--exposure", "years"), {"exposure": [50.0]}),
    "offset": (("--loss", "poisson", "--offset", "years"), {"offset": [4.0]}),
    "time": (
        ("--loss", "survival", "--time", "years", "--breaks", "0.5,1"),
        {"time": [50.0]},
    ),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_rows_come_with_what_stands_beside_them(
    kind: str, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng, (options, beside), n = np.random.default_rng(0), BESIDE[kind], 80
    table = pd.DataFrame({"who": [f"person {i}" for i in range(n)]})
    table["size"], table["plan"] = rng.normal(size=n).round(3), ["a", "b"] * (n // 2)
    table["years"] = rng.uniform(0.1, 2.0, n)
    table["hits"] = rng.integers(0, 2, n)
    table.to_csv("rows.csv", index=False)
    about = ("--target", "hits", "--subject", "who", "-r", "registry", *options)
    assert call("init", "-r", "registry").code == 0
    declared = ("--no-trial", "--sigma", "0.0001")
    done = call("fit", "claims", "rows.csv", *about, *declared)
    assert done.code == 0, done.err
    new = {"X": [[0.5, "b"]], "y": [1]} | beside
    schema = ("--schema", "rows.schema.json")
    with (
        Registry.open("registry") as registry,
        serve_in_process(registry) as service,
    ):
        for wrong in (
            {"X": [[0.5, "b"]], "y": [1]},
            {**new, kind: [1.0, 2.0]},
            {**new, kind: [-1.0 if kind != "offset" else 1e9]},
        ):
            answer = send(service, right="rectify", rows={"claims": wrong})
            assert answer.status_code == 422, answer.text
        asked = {"columns": ["plan", "size"], **new, "X": [["b", 0.5]]}
        answer = send(service, id=ID, right="rectify", rows={"claims": asked})
        assert answer.status_code == 201, answer.text
        clock.pass_window(service)
        assert service.call("GET", ONE, "request").json()["outcome"] == "done"
        found = registry.model("claims").coef_
    place = table["who"] == "person 3"
    table.loc[place, ["size", "plan", "hits", "years"]] = [0.5, "b", 1, *beside[kind]]
    table.to_csv("right.csv", index=False)
    assert call("fit", "again", "right.csv", *about, *schema, *declared).code == 0
    with Registry.open("registry") as registry:
        assert np.abs(registry.model("again").coef_ - found).max() < 2e-3


class TestTables:
    """Rectifying rows of a model that ``expunge fit`` made from a table."""

    @pytest.fixture
    def service(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[InProcess]:
        monkeypatch.chdir(tmp_path)
        rows = (
            f"person {one},{20 + one % 7},{('basic', 'pro')[one % 3 > 1]},"
            f"{'' if one == 9 else f'2025-01-{1 + one % 28:02}'},"
            f"{('no', 'yes')[one % 2]}"
            for one in range(60)
        )
        header = "customer,age,plan,joined,bought"
        Path("rows.csv").write_text("\n".join([header, *rows]) + "\n")
        folder = ("-r", "registry")
        assert call("init", *folder).code == 0
        columns = ("--target", "bought", "--subject", "customer", "--sigma", "0.5")
        assert call("fit", "sales", "rows.csv", *columns, *folder).code == 0
        with Registry.open("registry") as registry:
            with serve_in_process(registry) as running:
                yield running

    @pytest.mark.parametrize(
        "new",
        [
            {"X": [[31, "pro", 20100], [32, "basic", None]], "y": ["yes", "no"]},
            {
                "columns": ["plan", "joined", "age"],
                "X": [["pro", 20100, 31], ["basic", None, 32]],
                "y": ["yes", "no"],
            },
        ],
    )
    def test_rows_are_rectified(
        self, service: InProcess, clock: Clock, new: Any
    ) -> None:
        answer = send(service, id=ID, right="rectify", rows={"sales": new})
        assert answer.status_code == 201, answer.text
        clock.pass_window(service)
        assert service.call("GET", ONE, "request").json()["outcome"] == "done"

    @pytest.mark.parametrize(
        "new",
        [
            {"X": [["pro", 31, 20100]], "y": ["yes"]},
            {"X": [[31, "pro"]], "y": ["yes"]},
            {"columns": ["age", "plan"], "X": [[31, "pro", 20100]], "y": ["yes"]},
            {"columns": ["age", "plan", "x"], "X": [[31, "pro", 1]], "y": ["yes"]},
            {"columns": ["age", "age", "plan"], "X": [[31, 1, "pro"]], "y": ["yes"]},
        ],
    )
    def test_rows_in_other_columns_are_refused(
        self, service: InProcess, clock: Clock, new: Any
    ) -> None:
        answer = send(service, right="rectify", rows={"sales": new})
        assert answer.status_code == 422, answer.text
        assert service.registry.status().n_requests == 0


@pytest.mark.parametrize(
    "rows",
    [
        {"all": {"X": [[1.0]], "y": [1]}},
        {"all": {"X": [[1.0, 2.0], [1.0]], "y": [1, 0]}},
        {"all": {"X": [], "y": []}},
        {"none": {"X": [[0.5, 0.1, 0.2, -0.3]], "y": [1]}},
    ],
)
def test_wrong_rows_are_refused(service: InProcess, clock: Clock, rows: Any) -> None:
    answer = send(service, right="rectify", rows=rows)
    assert answer.status_code == 422, answer.text
    assert service.registry.status().n_requests == 0


def test_extending_a_deadline(service: InProcess) -> None:
    send(service, id=ID, submitted=today().isoformat())
    told = {"reason": "complex", "notified": today().isoformat()}
    answer = service.call("POST", f"{ONE}/extend", "operate", json=told)
    assert answer.is_success, answer.text
    again = service.call("POST", f"{ONE}/extend", "operate", json=told)
    assert again.status_code == 422
    assert (
        service.call("POST", f"{ONE}/extend", "request", json=told).status_code == 403
    )


def test_a_request_by_an_alias_can_be_sent_again_when_the_alias_is_gone(
    service: InProcess, clock: Clock
) -> None:
    ada = Identifier("email", "ada@example.org")
    service.registry.aliases.add([("person 9", ada)])
    people = [{"email": "ada@example.org"}]
    first = send(service, id=ID, people=people)
    clock.pass_window(service)
    assert service.registry.aliases.find([ada]) == {}
    again = send(service, id=ID, people=people)
    assert again.status_code == first.status_code
    assert again.json()["state"] == "completed"


def test_an_operator_does_not_see_how_requests_of_others_ended(
    service: InProcess, clock: Clock
) -> None:
    send(service, id=ID, people=[{"id": "nobody"}])
    clock.pass_window(service)
    seen = service.call("GET", ONE, "operate").json()
    assert (seen["state"], seen["outcome"], seen["receipt"]) == (
        "completed",
        None,
        None,
    )
    assert service.call("GET", f"{ONE}/receipt", "operate").status_code == 403
    for scope in ("request", "audit", "admin"):
        assert service.call("GET", ONE, scope).json()["outcome"] == "nothing found"
        assert service.call("GET", f"{ONE}/receipt", scope).status_code == 200


def test_looks_at_requests_of_others_are_written_down(service: InProcess) -> None:
    send(service, id=ID)
    for scope in ("request", "operate", "operate", "audit"):
        service.call("GET", ONE, scope)
    found = [(one.actor, one.target) for one in service.registry.access.trail()]
    assert found == [("operate desk", ID), ("audit desk", ID)]
