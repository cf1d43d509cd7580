# SPDX-License-Identifier: Apache-2.0
"""A ticket leads to a person: operators find it, and it is written nowhere in words."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from expunge.cli.output import DONE
from expunge.exceptions import InvalidInput, UnknownRequest
from expunge.registry import Registry, Remark, Request
from tests.registries import A_REQUEST, folder_of

from .calling import call
from .services import InProcess, serve_in_process
from .visitors import answer_all, post, send, sign_in

TICKET, NOTE = "DSR-1042-ada", "ada asked by phone"


def test_a_remark_is_found_and_sealed(registry: Registry) -> None:
    requests = registry.requests
    one, other = (
        requests.accept([Request((who,))])[0].request
        for who in ("person 3", "person 5")
    )
    requests.remark(one, TICKET, note=NOTE)
    assert requests.find_reference(f" {TICKET.upper()} ") == [one]
    assert requests.remarks([one, other]) == {one: Remark(TICKET, NOTE)}
    registry.keys.rotate_tag_key()
    assert requests.find_reference(TICKET) == [one]
    requests.apply()
    assert requests.remarks([one])[one].note == NOTE
    requests.remark(one, "=1+1")
    assert requests.find_reference(TICKET) == []
    requests.erase_remarks([one])
    assert requests.remarks([one]) == {}
    with pytest.raises(UnknownRequest):
        requests.remark(A_REQUEST, TICKET)
    for reference, note in (("x" * 201, ""), ("", "x" * 2001), ("a\nb", "")):
        with pytest.raises(InvalidInput):
            requests.remark(other, reference, note=note)


def test_an_owner_has_a_name(sqlite_registry: Registry) -> None:
    for owner in (" ", "@example.org"):
        with pytest.raises(InvalidInput, match="name"):
            sqlite_registry.access.create("desk", ["operate"], owner=owner)


def test_no_file_has_it_in_words(sqlite_registry: Registry) -> None:
    (status,) = sqlite_registry.requests.accept([Request(("person 3",))])
    sqlite_registry.requests.remark(status.request, TICKET, note=NOTE)
    for path in folder_of(sqlite_registry).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert b"DSR-1042" not in data and b"by phone" not in data, path
    assert "DSR" not in repr(sqlite_registry.requests.remarks([status.request]))


def test_a_cell_is_no_formula(sqlite_registry: Registry, tmp_path: Path) -> None:
    requests = sqlite_registry.requests
    wild = ["=cmd()", "+1", "-1", "@x", "plain, with a comma"]
    for place, reference in enumerate(wild):
        (status,) = requests.accept([Request((f"person {place}",))])
        requests.remark(status.request, reference)
    requests.apply()
    where = ("-r", folder_of(sqlite_registry))
    assert call("outcomes", "--csv", tmp_path / "o.csv", *where).code == DONE
    text = (tmp_path / "o.csv").read_bytes().decode()
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    shown = sorted(one["reference"] for one in lines)
    assert shown == sorted(["'=cmd()", "'+1", "'-1", "'@x", wild[-1]])
    assert {(one["stage"], one["outcome"]) for one in lines} == {("completed", "done")}
    done = call("outcomes", "--since", "2099-01-01", *where)
    assert done.out.strip().count("\n") == 0


@pytest.fixture
def service(sqlite_registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(sqlite_registry) as service:
        yield service


def test_by_api_and_page(service: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    request = send(service, id=A_REQUEST, reference=TICKET)
    path = f"/api/v1/requests/{request}"
    for scope in ("request", "operate", "audit"):
        assert service.call("GET", path, scope).json()["reference"] == TICKET
    found = service.call("POST", "/api/v1/find", "operate", json={"reference": TICKET})
    assert found.json() == {"requests": [request]}
    sign_in(service, "operate")
    answer = post(service, "/find", reference=TICKET)
    assert answer.headers["Location"] == f"/requests/{request}"
    assert post(service, "/find", reference="none").status_code == 404
    answer = post(service, f"/requests/{request}/remark", reference="R2", note=NOTE)
    assert answer.status_code == 303
    page = service.http.get(f"/requests/{request}").text
    assert NOTE in page and "R2" in page and "R2" in service.http.get("/").text
    send(service, id=request, reference=TICKET)  # again: it stays as it was changed
    assert service.call("GET", path, "operate").json()["reference"] == "R2"
    answer_all(service, monkeypatch)
    answer = service.call("GET", "/api/v1/outcomes", "audit")
    assert f"R2,{request},erase" in answer.text
    batch = f"person,reference\nperson 7,{TICKET}\n"
    sent = service.call(
        "POST",
        "/api/v1/requests/batch",
        "request",
        content=batch,
        headers={"Content-Type": "text/csv"},
    )
    assert sent.json()["requests"][0]["reference"] == TICKET
