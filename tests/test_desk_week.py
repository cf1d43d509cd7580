# SPDX-License-Identifier: Apache-2.0
"""A privacy desk's week: everybody who is held is found, and no stranger can tell.

Two models know people differently: one by their addresses, in whatever case these were
typed, the other by customer numbers, with the addresses as aliases. Each day people ask
by the command line, the API, the page, a spreadsheet and OpenDSR, by raw values in any
case, aliases and hashes; for each of them a stranger asks in the same way. On some days
somebody must have checked who asks, and two people must approve.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pytest
from fastapi.testclient import TestClient

from expunge.cli.output import DONE, NEAR_MISS, UNKNOWN
from expunge.exceptions import OneAgreed
from expunge.registry import Decider, Registry, RequestRule
from expunge.rights import Identifier
from expunge.service.app import create_app
from tests.registries import kept_of_request

from .calling import call
from .opendsr_client import identity, make_request
from .opendsr_service import Clock, make_settings
from .services import InProcess
from .visitors import post, sign_in

FIRST, N_PEOPLE = 100, 90  # held: numbers of three digits; strangers come after 900
DAYS, N_WAYS = 5, 4
RECASE: tuple[Callable[[str], str], ...] = (str, str.upper, str.lower, str.swapcase)


def address(number: int) -> str:
    return f"Hans.{number}@Example.org"


def digest(number: int) -> str:
    return Identifier("email", address(number)).digest()


class Words(NamedTuple):
    """A way to name somebody: kind and value, as the API takes them."""

    kind: str
    value: str

    @property
    def typed(self) -> str:
        """As on the command line and in the form."""
        return self.value if self.kind == "id" else f"{self.kind}:{self.value}"

    @property
    def identity(self) -> dict[str, str]:
        """As OpenDSR has it."""
        if self.kind == "id":
            return identity(self.value, "controller_customer_id")
        if self.value.startswith("sha256:"):
            raw = bytes.fromhex(self.value.removeprefix("sha256:"))
            return identity(b64encode(raw).decode(), form="sha256")
        return identity(self.value)


def list_words(number: int, turn: int) -> list[Words]:
    """Return all ways to name somebody, in another case each turn."""
    recased = RECASE[turn % len(RECASE)](address(number))
    return [
        Words("email", recased),
        Words("email", f"sha256:{digest(number)}"),
        Words("id", recased),
        Words("id", f"customer {number}"),
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a registry by commands, as an operator would."""
    monkeypatch.chdir(tmp_path)
    Clock().install(monkeypatch)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2 * N_PEOPLE, 2)).round(4)
    numbers = [FIRST + row // 2 for row in range(len(X))]
    label = np.where(X[:, 0] + rng.standard_normal(len(X)) > 0, "yes", "no")
    mail, shop = ["who,a,b,left"], ["who,a,b,left"]
    for row, number in enumerate(numbers):
        rest = f"{X[row, 0]},{X[row, 1]},{label[row]}"
        mail.append(f"{RECASE[row % len(RECASE)](address(number))},{rest}")
        shop.append(f"customer {number},{rest}")
    Path("mail.csv").write_text("\n".join(mail))
    Path("shop.csv").write_text("\n".join(shop))
    pairs = [f"customer {one},email,{address(one)}" for one in dict.fromkeys(numbers)]
    Path("aliases.csv").write_text("\n".join(["person,kind,value", *pairs]))
    fit = ("--target", "left", "--subject", "who", "--no-trial", "--sigma", "5")
    for words in (
        ("init",),
        ("fit", "mail", "mail.csv", *fit, "--subject-kind", "email"),
        ("fit", "shop", "shop.csv", *fit),
        ("alias", "import", "aliases.csv"),
    ):
        done = call(*words)
        assert done.code == DONE, done.err
    return tmp_path / "expunge-registry"


@pytest.fixture
def service(folder: Path, tmp_path: Path) -> Iterator[InProcess]:
    settings = make_settings(tmp_path, rate=10**6)
    with Registry.open(folder) as registry:
        scopes = ("request", "operate")
        tokens = {one: registry.access.create(one, [one])[1] for one in scopes}
        app = create_app(registry, settings)
        with TestClient(app, raise_server_exceptions=False) as http:
            yield InProcess(http, registry, tokens)


class Asked(NamedTuple):
    """A request, and all that its sender saw before the answer."""

    request: str
    seen: object


def show(service: InProcess, request: str) -> dict[str, Any]:
    answer = service.call("GET", f"/api/v1/requests/{request}", "request")
    return {**answer.json(), "id": "", "code": answer.status_code}


def ask_api(service: InProcess, words: Words) -> Asked:
    body = {"people": [{words.kind: words.value}]}
    answer = service.call("POST", "/api/v1/requests", "request", json=body)
    request = answer.json()["id"]
    size = len(answer.content)
    return Asked(request, (answer.status_code, size, show(service, request)))


def ask_page(service: InProcess, words: Words) -> Asked:
    sign_in(service, "request")
    request = uuid4().hex
    fields = {"id": request, "right": "erase", "people": words.typed}
    answer = post(service, "/requests/new", **fields)
    place = answer.headers.get("Location", "").replace(request, "")
    page = service.http.get(f"/requests/{request}")
    text = page.text.replace(request, "").replace(request[:12], "")
    first = service.http.get("/").text
    seen = (answer.status_code, place, page.status_code, len(text))
    return Asked(request, (*seen, NEAR in first, "near miss" in text))


def ask_opendsr(service: InProcess, words: Words) -> Asked:
    body = make_request(words.identity)
    answer = service.call("POST", "/v2/requests", "request", content=body)
    request = json.loads(body)["subject_request_id"]
    status = service.call("GET", f"/v2/requests/{request}", "request")
    told = {**status.json(), "subject_request_id": ""}
    size = len(answer.content)
    return Asked(request.replace("-", ""), (answer.status_code, size, told))


def ask_sheet(service: InProcess, words: Words) -> Asked:
    """Upload a spreadsheet of one line, look at it, and send it."""
    sign_in(service, "request")
    kind = "Person" if words.kind == "id" else words.kind.upper()
    request = uuid4().hex
    table = f"ID;{kind};Reference\n{request};{words.value};T-{request}"
    seen = post(service, "/requests/upload", text=table)
    batch = re.search(r'name="batch" value="([^"]*)"', seen.text)
    assert batch is not None, seen.text
    answer = post(service, "/requests/upload", batch=unescape(batch[1]))
    assert service.registry.requests.find_reference(f"T-{request}") == [request]
    text = service.http.get(f"/requests/{request}").text
    text = text.replace(request, "").replace(request[:12], "")
    place = answer.headers.get("Location", "")
    return Asked(request, (answer.status_code, place, len(text)))


NEAR = "Near misses."
CHANNELS = (ask_api, ask_page, ask_opendsr, ask_sheet)
TWO = RequestRule(identity=True, four_eyes=True)


def approve_all(service: InProcess, secrets: dict[str, str]) -> None:
    """Check who asks, and let two people approve; nothing is done before."""
    requests = service.registry.requests
    waiting = [one.request for one in service.registry.status().pending]
    for request in waiting:
        requests.check_identity(request, "sender")
    for secret in secrets.values():
        requests.apply(before=1 << 60)
        for request in waiting:
            assert requests.status(request).stage == "accepted"
            requests.approve(request, by=Decider(shown=secret))


def test_everybody_who_is_held_is_found_and_no_stranger_can_tell(
    service: InProcess,
) -> None:
    registry, held, strangers = service.registry, FIRST, 900
    secrets = {
        who: registry.access.create(who, ["operate"], owner=who)[1]
        for who in ("ada", "bob")
    }
    for day in range(DAYS):
        strict = day == 1
        if strict:
            registry.rules.set("erase", TWO)
        known: dict[str, int] = {}
        unknown: list[str] = []
        for ask in CHANNELS:
            for way in range(N_WAYS):
                words = list_words(held, day)[way]
                one = ask(service, words)
                other = ask(service, list_words(strangers, day)[way])
                assert one.seen == other.seen, (ask.__name__, words)
                counts = [kept_of_request(registry, a.request) for a in (one, other)]
                assert counts[0] == counts[1], (ask.__name__, words)
                known[one.request] = held
                unknown.append(other.request)
                held, strangers = held + 1, strangers + 1
        if strict:
            approve_all(service, secrets)
            for secret in secrets.values():
                with suppress(OneAgreed):
                    by = Decider(shown=secret)
                    registry.rules.set("erase", RequestRule(), by=by)
        registry.requests.apply(before=1 << 60)  # every window has closed
        for request, number in known.items():
            status = registry.requests.status(request)
            assert status.outcome == "done", number
        outcomes = {registry.requests.status(one).outcome for one in unknown}
        assert outcomes == {"nothing found"}
        assert registry.requests.near_misses() == set()
        # On the command line, where the operator is told.
        words = list_words(held, day)[day % N_WAYS]
        assert call("forget", words.typed).code == DONE
        held += 1
        done = call("forget", list_words(strangers, day)[day % N_WAYS].typed)
        assert done.code == UNKNOWN and "looked for as id, email" in done.err
    # Whoever asked by an address is gone from both models, and does not come back.
    gone = address(FIRST).lower()
    both = [gone, f"customer {FIRST}"]
    assert set(registry.requests.find_models(both).values()) == {()}
    fit = ("fit", "again", "mail.csv", "--target", "left", "--no-trial", "--sigma", "5")
    assert call(*fit, "--subject", "who").code != DONE
    assert call(*fit, "--no-subject", "--drop", "who").code != DONE


def test_operators_see_near_misses_and_senders_do_not(service: InProcess) -> None:
    near = ask_api(service, Words("id", "CUSTOMER 0100"))
    far = ask_api(service, Words("id", "CUSTOMER 0900"))
    assert near.seen == far.seen
    listed = service.call("GET", "/api/v1/near-misses", "operate").json()
    assert listed == {"requests": [near.request]}
    sign_in(service, "operate")
    first = service.http.get("/").text
    assert (
        NEAR in first and f'/requests/{near.request}">' in first.partition("<tbody>")[0]
    )
    page = service.http.get(f"/requests/{near.request}")
    assert "A near miss" in page.text
    done = call("forget", "CUSTOMER 0100", "--answer-strangers")
    assert done.code == NEAR_MISS and "'customer 100'" in done.err
    answer = post(service, f"/requests/{near.request}/exact")
    assert answer.status_code == 303
    assert NEAR not in service.http.get("/").text
