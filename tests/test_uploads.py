# SPDX-License-Identifier: Apache-2.0
"""What a desk sends by the browser: spreadsheets, several people, and new rows."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from expunge.cli.output import DONE
from expunge.registry import Registry
from tests.registries import data, rows_of

from .calling import call
from .services import InProcess, apply_window, serve_in_process
from .visitors import OURS, post, send, sign_in

EXCEL = (
    "Right;Person;E-Mail;Reference\r\nErase;person 3;;T-1\r\n;;Ada@Example.org;T-2\r\n"
)
TABLES = {
    "commas": EXCEL.replace(";", ",").encode(),
    "semicolons": EXCEL.encode(),
    "a mark": EXCEL.encode("utf-8-sig"),
    "empty lines": (EXCEL + ";;;\r\n;;;\r\n").encode(),
    "a separator": ("sep=;\r\n" + EXCEL).encode(),
    "UTF-16": EXCEL.replace(";", "\t").encode("utf-16"),
    "Windows": EXCEL.replace("T-2", "J\xfcrgen").encode("cp1252"),
}


@pytest.fixture
def service(sqlite_registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(sqlite_registry) as service:
        sign_in(service, "request")
        yield service


def upload(service: InProcess, content: bytes) -> Any:
    page = service.http.get("/requests/upload").text
    word = re.search(r'name="form_token" value="([0-9a-f]+)"', page)
    assert word is not None
    files = {"file": ("requests.csv", content, "text/csv")}
    given = {"form_token": word[1]}
    return service.http.post(
        "/requests/upload",
        data=given,
        files=files,
        headers=OURS,
        follow_redirects=False,
    )


def batch_of(page: str) -> str:
    """Return what a preview holds, to be sent."""
    found = re.search(r'name="batch" value="([^"]*)"', page)
    assert found is not None
    return unescape(found[1])


def pending(service: InProcess) -> list[Any]:
    return list(service.registry.status().pending)


@pytest.mark.parametrize("kind", TABLES)
def test_a_spreadsheet_is_seen_before_it_is_sent(service: InProcess, kind: str) -> None:
    answer = upload(service, TABLES[kind])
    assert answer.status_code == 200 and "These are 2 requests: 2 erase" in answer.text
    assert "id: person 3" in answer.text and "email: Ada@Example.org" in answer.text
    assert pending(service) == []  # nothing yet
    for _ in range(2):  # sent twice it is sent once
        sent = post(service, "/requests/upload", batch=batch_of(answer.text))
        assert sent.headers["Location"] == "/?said=accepted-all"
        assert len(pending(service)) == 2
    ids = [one.request for one in pending(service)]
    found = service.registry.requests.remarks(ids)
    second = "J\xfcrgen" if kind == "Windows" else "T-2"
    assert {one.reference for one in found.values()} == {"T-1", second}


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("right;person\nerase;a;b", "line 2 does not have as many"),
        ("right;person\nforget;a", "line 2: right"),
        ("Person;person\na;b", "two columns have the same name"),
        ("", "at least one request"),
        ("right;person\nend-hold;a", "needs a token with the scope operate"),
        ("right;person\nhold;a", "to hold rows, give one of"),
        ("right;person\nrectify;a", "needs new rows"),
    ],
)
def test_one_wrong_line_refuses_all_and_stays_typed(
    service: InProcess, table: str, why: str
) -> None:
    answer = post(service, "/requests/upload", text=table)
    text = unescape(answer.text)
    assert answer.status_code in (403, 422) and why in text and table in text
    assert pending(service) == []


def test_several_people_are_several_requests_or_one(service: InProcess) -> None:
    people = "person 3\nperson 5\nemail:ada@example.org"
    fields = {"id": "a" * 32, "right": "erase", "people": people, "reference": "T-9"}
    for _ in range(2):
        answer = post(service, "/requests/new", **fields)
        assert answer.headers["Location"] == "/?said=accepted-all"
    assert [one.n_subjects for one in pending(service)] == [1, 1, 1]
    assert len(service.registry.requests.find_reference("T-9")) == 3
    post(service, "/requests/new", **fields | {"id": "b" * 32, "each": "one"})
    assert service.registry.requests.status("b" * 32).n_subjects == 3


def test_what_was_typed_survives_an_error(service: InProcess) -> None:
    typed = {"people": "phone:12\n<b>", "right": "hold", "until": "2020-01-01"}
    typed |= {"reason": "research", "reference": "T-3", "id": "c" * 32, "each": "one"}
    answer = post(service, "/requests/new", **typed)
    page = unescape(answer.text)
    assert answer.status_code == 422 and 'role="alert"' in answer.text
    for shown in (">phone:12\n<b></textarea>", 'value="2020-01-01"', 'value="T-3"'):
        assert shown in page
    assert 'value="research" selected' in page and 'value="hold" selected' in page
    assert f'name="id" value="{"c" * 32}"' in page
    assert 'value="one" checked' in page


def test_new_rows_want_the_columns_of_the_model(sqlite_registry: Registry) -> None:
    with serve_in_process(sqlite_registry, window=1) as service:  # or they wait
        sign_in(service, "request")
        refuse_rows(service)


def refuse_rows(service: InProcess) -> None:
    X, y, _ = data()
    fields = {"person": "person 3", "model": "all"}
    answer = post(service, "/requests/rectify", **fields, rows="a,b\n1,2")
    assert answer.status_code == 422 and ">a,b" in answer.text
    assert "'target' among them" in unescape(answer.text)
    (row, *_) = rows_of("person 3")
    rows = f"0,1,2,3,target\n{','.join(str(one) for one in X[row])},{1 - y[row]}"
    answer = post(service, "/requests/rectify", **fields, rows=rows)
    assert answer.status_code == 422  # this model has no names of columns
    assert "the new rows do not fit" in answer.text and pending(service) == []


def test_new_rows_in_the_words_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["who,age,town,joined,left"]
    for row in range(80):
        town, left = ("Rome", "Oslo")[row % 2], "yes" if row % 3 else "no"
        day = f"2020-0{1 + row % 9}-11"
        lines.append(f"customer {row // 2},{20 + row % 7},{town},{day},{left}")
    Path("c.csv").write_text("\n".join(lines))
    assert call("init").code == DONE
    fit = ("fit", "churn", "c.csv", "--target", "left", "--subject", "who")
    assert call(*fit, "--no-trial", "--sigma", "5").code == DONE
    with (
        Registry.open("expunge-registry") as registry,
        serve_in_process(registry, window=1) as service,
    ):
        sign_in(service, "operate")
        assert '<option value="churn"' in service.http.get("/requests/rectify").text
        rows = "town;age;left;joined\r\nOslo;33;yes;2021-02-03\r\n"
        fields = {"person": "customer 7", "model": "churn", "rows": rows}
        answer = post(service, "/requests/rectify", **fields)
        assert answer.status_code == 303, answer.text
        apply_window(service)
        place = answer.headers["Location"].partition("?")[0].rpartition("/")[2]
        assert registry.requests.status(place).outcome == "done"
        account = registry.people.account(["customer 7"])
        for value in ("33.0", '"Oslo"', '"2021-02-03"', '"yes"'):
            assert value in account
        for wrong in (rows.replace("33", "old"), rows.replace("2021", "MMXXI")):
            answer = post(service, "/requests/rectify", **fields | {"rows": wrong})
            told = re.search(r'role="alert">(.*?)</div>', answer.text)
            assert answer.status_code == 422 and told is not None
            assert "old" not in told[1] and "MMXXI" not in told[1]


def test_what_cannot_be_undone_wants_a_tick(service: InProcess) -> None:
    request = send(service)
    path = f"/requests/{request}/cancel"
    answer = post(service, path, confirmed="")
    assert answer.status_code == 422 and "tick the box" in answer.text
    assert service.registry.requests.status(request).stage == "accepted"
    page = service.http.get(f"/requests/{request}").text
    assert 'name="confirmed" value="yes" required' in page
    assert post(service, path).status_code == 303
