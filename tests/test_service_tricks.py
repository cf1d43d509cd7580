# SPDX-License-Identifier: Apache-2.0
"""Tricks: what a clever caller may try with bodies, ids and tokens gains nothing."""

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from expunge.registry import Registry
from expunge.rights import Identifier

from .registries import registry_at
from .services import InProcess, apply_window, serve_in_process

ID = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"
REQUESTS = "/api/v1/requests"
BATCH = f"{REQUESTS}/batch"
ONE = f"{REQUESTS}/{ID}"
CANARY = "canary@example.org"
JSON, NDJSON = "application/json", "application/x-ndjson"


@pytest.fixture
def registry(sqlite_registry: Registry) -> Registry:
    return sqlite_registry


@pytest.fixture
def fresh(registry: Registry) -> Iterator[InProcess]:
    """Lend a service that may be changed."""
    with serve_in_process(registry) as running:
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    """Lend a service that refuses everything that its tests send."""
    folder = tmp_path_factory.mktemp("tricks") / "registry"
    with registry_at(folder) as registry, serve_in_process(registry) as running:
        yield running


def post(
    service: InProcess, content: bytes, kind: str = JSON, path: str = REQUESTS
) -> Any:
    headers = {"Content-Type": kind}
    return service.call("POST", path, "request", content=content, headers=headers)


def send(service: InProcess, scope: str = "request", **fields: Any) -> Any:
    body = {"people": [{"id": "person 3"}], **fields}
    return service.call("POST", REQUESTS, scope, json=body)


def require_refused(answer: Any, service: InProcess, code: int = 422) -> None:
    """See that a call is refused as a problem, tells nothing, and changes nothing."""
    assert answer.status_code == code, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == code
    assert "canary" not in answer.text
    assert service.registry.status().n_requests == 0


class TestIds:
    @pytest.mark.parametrize("address", ["ada@example.org", "nobody@example.org"])
    def test_a_request_sent_again_is_the_same_once_its_alias_is_gone(
        self, fresh: InProcess, address: str
    ) -> None:
        ada = Identifier("email", "ada@example.org")
        fresh.registry.aliases.add([("person 7", ada)])
        first = send(fresh, id=ID, people=[{"email": address}])
        apply_window(fresh)
        again = send(fresh, id=ID, people=[{"email": address}])
        assert (again.status_code, again.json()) == (201, first.json())
        other = send(fresh, id=ID, people=[{"email": "eve@example.org"}])
        assert other.status_code == 409

    def test_the_same_id_of_another_sender_is_a_conflict(
        self, fresh: InProcess
    ) -> None:
        assert send(fresh, id=ID).status_code == 201
        answer = send(fresh, "operate", id=ID)
        assert answer.status_code == 409
        assert "request desk" not in answer.text

    def test_requests_of_others_are_unknown(self, fresh: InProcess) -> None:
        other = fresh.registry.access.create("other desk", ["request"])[1]
        headers = {"Authorization": f"Bearer {other}"}
        assert send(fresh, id=ID).status_code == 201
        for method, path in (
            ("GET", ONE),
            ("DELETE", ONE),
            ("GET", f"{ONE}/receipt"),
        ):
            theirs = fresh.http.request(method, path, headers=headers)
            nobodys = fresh.http.request(
                method, path.replace(ID, OTHER), headers=headers
            )
            assert theirs.status_code == nobodys.status_code == 404
            assert theirs.text.replace(ID, OTHER) == nobodys.text
        page = fresh.http.get(REQUESTS, headers=headers)
        assert page.json() == {"requests": [], "next": None}
        assert fresh.call("GET", ONE, "request").json()["state"] == "pending"

    @pytest.mark.parametrize(
        "id_",
        [
            "",
            "a",
            ID.upper().replace("0", "A"),
            f"{ID}0",
            f"{ID}\n",
            f" {ID}",
            CANARY,
            "\u0660" * 32,
            "0" * 100_000,
        ],
    )
    def test_ids_of_another_form_are_refused(
        self, service: InProcess, id_: str
    ) -> None:
        require_refused(send(service, id=id_), service)


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            f"{REQUESTS}/..%2f..%2fkeys",
            f"{REQUESTS}/%2e%2e",
            f"/api/v1//requests/{ID}",
            f"{REQUESTS}/{ID}%2freceipt",
            f"{REQUESTS}/{ID}%00",
            f"{REQUESTS}/{CANARY}",
            f"{REQUESTS}/" + "0" * 5000,
            "/api/v1/models/..%2f..%2fregistry.json",
            "/api/v1/models/%2e%2e/release",
            "/api/v1/models/%00/certificate",
            f"/api/v1/models/{CANARY}",
            f"/api/v1/models/{CANARY}/release",
            f"/api/v1/models/{'m' * 5000}",
            "/api/v1/models/%F0%9F%98%80",
            "/api/v1/models/%ff",
            "/static/../../../../pyproject.toml",
            "/static/..%2f..%2f..%2fapp.py",
            "/static/%2e%2e/__init__.py",
            "/static//etc/passwd",
            f"/{CANARY}",
        ],
    )
    def test_odd_paths_lead_nowhere(self, service: InProcess, path: str) -> None:
        answer = service.call("GET", path)
        assert answer.status_code in (404, 422), answer.text
        assert "canary" not in answer.text
        assert "import" not in answer.text and "root:" not in answer.text

    def test_withdrawing_an_unknown_model_names_nobody(
        self, service: InProcess
    ) -> None:
        path = f"/api/v1/models/{CANARY}/releases/1/withdraw"
        require_refused(service.call("POST", path, "operate"), service, 404)

    @pytest.mark.parametrize("number", ["0", "-1", "99999999999999999999", "1e3", "x"])
    def test_odd_numbers_of_releases_are_refused(
        self, service: InProcess, number: str
    ) -> None:
        path = f"/api/v1/models/all/releases/{number}/withdraw"
        require_refused(service.call("POST", path, "operate"), service)


class TestTokens:
    def test_a_token_counts_in_the_header_alone(self, fresh: InProcess) -> None:
        secret = fresh.tokens["admin"]
        every: tuple[dict[str, Any], ...] = (
            {"params": {"token": secret, "access_token": secret}},
            {"headers": {"X-Api-Key": secret}},
            {"headers": {"Cookie": f"token={secret}"}},
            {"headers": {"Cookie": f"expunge_session={secret}"}},
            {"headers": {"Authorization": secret}},
            {"headers": {"Authorization": f"Token {secret}"}},
            {"headers": {"Authorization": f"Bearer {secret[:-1]}"}},
            {"headers": {"Authorization": f"Bearer {secret} {secret}"}},
            {"headers": {"Authorization": "Bearer"}},
            {"headers": {"Authorization": f"Basic {secret}"}},
            {"headers": {"Authorization": "Basic " + "=" * 9}},
        )
        for given in every:
            answer = fresh.http.request("GET", REQUESTS, **given)
            assert answer.status_code == 401, given
            assert secret not in answer.text
            assert answer.headers["WWW-Authenticate"] == "Bearer"

    @pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer", "bEaReR"])
    def test_the_scheme_may_be_in_any_case(
        self, service: InProcess, scheme: str
    ) -> None:
        headers = {"Authorization": f"{scheme} {service.tokens['request']}"}
        assert service.http.get(REQUESTS, headers=headers).status_code == 200

    def test_a_token_may_be_a_password(self, service: InProcess) -> None:
        word = b64encode(f"anybody:{service.tokens['request']}".encode()).decode()
        headers = {"Authorization": f"Basic {word}"}
        assert service.http.get(REQUESTS, headers=headers).status_code == 200

    def test_a_revoked_token_is_of_no_use(self, service: InProcess) -> None:
        token, secret = service.registry.access.create("gone", ["request"])
        headers = {"Authorization": f"Bearer {secret}"}
        assert service.http.get(REQUESTS, headers=headers).status_code == 200
        revoked = service.call("DELETE", f"/api/v1/tokens/{token.id}")
        assert revoked.status_code == 204
        assert service.http.get(REQUESTS, headers=headers).status_code == 401

    def test_one_who_guesses_shuts_nobody_else_out(self, fresh: InProcess) -> None:
        codes = []
        for number in range(40):
            headers = {"Authorization": f"Bearer expunge_{number:043}"}
            codes.append(fresh.http.get(REQUESTS, headers=headers).status_code)
        assert codes == [401] * 30 + [429] * 10
        fresh.http.app.state.authenticator.forget()  # type: ignore[attr-defined]
        assert fresh.call("GET", REQUESTS, "request").status_code == 200

    def test_calls_are_counted_by_token(self, registry: Registry) -> None:
        with serve_in_process(registry, rate=5) as service:
            codes = [
                service.call("GET", REQUESTS, "request").status_code for _ in range(7)
            ]
            assert codes == [200] * 5 + [429] * 2
            last = service.call("GET", REQUESTS, "request")
            assert last.headers["Retry-After"] == "60"
            assert service.call("GET", REQUESTS, "audit").status_code == 200


DEEP = 100_000


class TestBodies:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"null",
            b"[]",
            b"{",
            b"\xff\xfe{\x00}\x00",
            b"\xef\xbb\xbfnot json canary",
            b'{"people": [{"id": "\\ud800"}]}',
            b'{"people": [{"id": "\xff"}]}',
            b'{"people": NaN}',
            b'{"people": [{"id": "x"}], "until": Infinity}',
            b'{"people": [{"id": 1e400}]}',
            b'{"people": [{"id": ' + b"9" * 5000 + b"}]}",
            b"[" * DEEP,
            b'{"people":' + b"[" * DEEP + b"]" * DEEP + b"}",
            b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
            b'{"people": [{"id": "canary@example.org"}], "submitted": "0000-00-00"}',
            b'{"people": [{"id": "canary@example.org"}], "submitted": "9999-12-31"}',
            b'{"people": [{"id": "canary@example.org"}], "regime": "canary"}',
            b'{"people": [{"id": "x"}], "right": "hold", "reason": "canary"}',
            b'{"people": [{"id": "x"}], "right": "hold", "until": "2001-01-01",'
            b' "reason": "legal-claims"}',
            b'{"people": [{"id": "x"}], "right": "rectify"}',
            b'{"people": [{"id": "x\\u0000"}]}',
            b'{"people": [{"email": "canary"}]}',
            b'{"people": [{"email": "sha256:canary"}]}',
            b'{"people": [{"id": "sha256:' + b"0" * 64 + b'"}], "id": "canary"}',
            b'{"people": [{}]}',
            b'{"people": [{"id": "x"}], "right": "rectify", "rows": {"all": {"X": '
            b'[["\\ud800"]], "y": [1]}}}',
        ],
        ids=range(27),
    )
    def test_odd_bodies_are_refused(self, service: InProcess, content: bytes) -> None:
        answer = post(service, content)
        require_refused(answer, service, 400 if answer.status_code == 400 else 422)

    @pytest.mark.parametrize(
        "content",
        [
            b'{"people": [{"id": "person 1"}], "people": [{"id": "person 2"}]}',
            b'{"people": [{"id": "person 1", "id": "person 2"}]}',
            b'{"people": [{"id": "person 1"}], "right": "erase", "right": "lift"}',
        ],
    )
    def test_a_field_given_twice_is_refused(
        self, fresh: InProcess, content: bytes
    ) -> None:
        answer = post(fresh, content)
        require_refused(answer, fresh, 400)
        assert "each field once" in answer.json()["detail"]
        batch = fresh.call(
            "POST",
            f"{REQUESTS}/batch",
            "request",
            content=b'{"people": [{"id": "person 1"}]}\n' + content,
            headers={"Content-Type": NDJSON},
        )
        require_refused(batch, fresh)
        assert "line 2" in batch.json()["detail"]

    @pytest.mark.parametrize("person", ["person 1", "nobody"])
    def test_a_hold_is_ended_by_operators_alone(
        self, fresh: InProcess, person: str
    ) -> None:
        asked = {"people": [{"id": person}], "right": "end-hold"}
        batch = {"content": json.dumps(asked), "headers": {"Content-Type": NDJSON}}
        for scope, code in (("request", 403), ("audit", 403), ("operate", 201)):
            one = fresh.call("POST", REQUESTS, scope, json=asked)
            several = fresh.call("POST", f"{REQUESTS}/batch", scope, **batch)
            assert (one.status_code, several.status_code) == (code, code)

    @pytest.mark.parametrize("kind", ["text/plain", "", "application/xml", "text/json"])
    def test_a_body_of_another_kind_is_refused(
        self, service: InProcess, kind: str
    ) -> None:
        content = json.dumps({"people": [{"id": CANARY}]}).encode()
        require_refused(post(service, content, kind), service)

    def test_a_packed_body_is_not_unpacked(self, service: InProcess) -> None:
        bomb = gzip.compress(b" " * 10_000_000 + b'{"people": [{"id": "x"}]}')
        answer = service.call(
            "POST",
            REQUESTS,
            "request",
            content=bomb,
            headers={"Content-Type": JSON, "Content-Encoding": "gzip"},
        )
        require_refused(answer, service, 400 if answer.status_code == 400 else 422)

    def test_a_long_body_is_refused(self, service: InProcess) -> None:
        body = json.dumps({"people": [{"id": CANARY}], "reason": "x" * 300_000})
        require_refused(post(service, body.encode()), service, 413)

    def test_a_long_body_without_a_length_is_refused(self, service: InProcess) -> None:
        parts = (b"x" * 10_000 for _ in range(30))
        headers = {"Content-Type": JSON}
        answer = service.call(
            "POST", REQUESTS, "request", content=parts, headers=headers
        )
        require_refused(answer, service, 413)

    def test_a_batch_may_be_longer_and_not_endless(self, registry: Registry) -> None:
        with serve_in_process(registry, largest_batch=300_000) as service:
            line = json.dumps({"people": [{"id": "x" * 500}]}).encode() + b"\n"
            fits = post(service, line * 500, NDJSON, BATCH)
            assert fits.status_code == 201
            too_long = post(service, line * 600, NDJSON, BATCH)
            assert too_long.status_code == 413
            twisted = post(service, line * 600, NDJSON, f"{BATCH}/")
            assert twisted.status_code in (307, 404, 405, 413)

    def test_many_people_are_refused(self, service: InProcess) -> None:
        people = [{"id": f"person {i}"} for i in range(1001)]
        require_refused(send(service, people=people), service)
        kinds = {f"kind{i}": CANARY for i in range(21)}
        require_refused(send(service, people=[kinds]), service)


class TestBatches:
    def lines(self, count: int, **fields: Any) -> bytes:
        line = {"people": [{"id": "person 1"}], **fields}
        return (json.dumps(line) + "\n").encode() * count

    def test_ten_thousand_lines_are_the_most(self, service: InProcess) -> None:
        answer = post(service, self.lines(10_001), NDJSON, BATCH)
        require_refused(answer, service)

    def test_the_same_id_twice_is_one_request(self, fresh: InProcess) -> None:
        answer = post(fresh, self.lines(2, id=ID), NDJSON, BATCH)
        assert answer.status_code == 201
        first, second = answer.json()["requests"]
        assert first == second
        assert fresh.registry.status().n_requests == 1

    def test_one_id_for_two_things_refuses_the_batch(self, service: InProcess) -> None:
        both = self.lines(1, id=ID) + self.lines(1, id=ID, right="object")
        good = self.lines(1, id=OTHER)
        require_refused(post(service, good + both, NDJSON, BATCH), service, 409)

    @pytest.mark.parametrize(
        ("content", "kind"),
        [
            (b"", NDJSON),
            (b"\n \n", NDJSON),
            (b"right,email\n", "text/csv"),
            (b"right,email\nerase\n", "text/csv"),
            (b"right,email\nerase,canary@example.org,x\n", "text/csv"),
            (b"email,email\ncanary@example.org,a@example.org\n", "text/csv"),
            (b"canary@example.org\ncanary@example.org\n", "text/csv"),
            (b'right,"email\nerase,canary@example.org\n', "text/csv"),
            (b"right,email\r\nerase,\x00canary@example.org\n", "text/csv"),
            ("right,email\nerase,a@b.org\n".encode("utf-16"), "text/csv"),
            (b"[" * 100_000, NDJSON),
            (b"9" * 10_000, NDJSON),
        ],
        ids=range(12),
    )
    def test_odd_batches_are_refused(
        self, service: InProcess, content: bytes, kind: str
    ) -> None:
        require_refused(post(service, content, kind, BATCH), service)

    @pytest.mark.parametrize("kind", [JSON, "", "text/csv2", "application/zip"])
    def test_a_batch_of_another_kind_is_refused(
        self, service: InProcess, kind: str
    ) -> None:
        require_refused(post(service, self.lines(1), kind, BATCH), service, 415)

    def test_a_mark_at_the_beginning_is_read_over(self, fresh: InProcess) -> None:
        content = b"\xef\xbb\xbfright,email\nerase,ada@example.org\n"
        assert post(fresh, content, "text/csv", BATCH).status_code == 201


class TestPages:
    def test_pages_have_each_request_once(self, fresh: InProcess) -> None:
        ids = {send(fresh).json()["id"] for _ in range(7)}
        seen, cursor = [], ""
        while True:
            path = f"{REQUESTS}?limit=3&cursor={cursor}"
            page = fresh.call("GET", path, "request").json()
            seen += [one["id"] for one in page["requests"]]
            cursor = page["next"]
            if cursor is None:
                break
        assert sorted(seen) == sorted(ids)

    @pytest.mark.parametrize(
        "query",
        [
            "cursor=canary",
            "cursor=%00",
            "cursor=-1",
            "cursor=AAAA",
            "cursor=" + "A" * 32,
            "cursor=" + "A" * 101,
            "cursor=9223372036854775808-x",
            "limit=0",
            "limit=1001",
            "limit=-1",
            "limit=1e2",
            "limit=canary",
            "due=canary",
            "due=9999-99-99",
            "state=canary",
        ],
    )
    def test_odd_queries_are_refused(self, service: InProcess, query: str) -> None:
        answer = service.call("GET", f"{REQUESTS}?{query}", "request")
        if query == "cursor=" + "A" * 32:  # a place at which there is nothing
            assert answer.status_code == 200
        else:
            require_refused(answer, service)

    def test_a_cursor_of_another_sender_shows_nothing_of_theirs(
        self, fresh: InProcess
    ) -> None:
        for _ in range(3):
            send(fresh, "operate")
        path = f"{REQUESTS}?limit=1"
        cursor = fresh.call("GET", path, "operate").json()["next"]
        page = fresh.call("GET", f"{path}&cursor={cursor}", "request").json()
        assert page == {"requests": [], "next": None}


class TestMethods:
    @pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE", "CANARY"])
    def test_other_methods_are_refused(self, service: InProcess, method: str) -> None:
        answer = service.call(method, REQUESTS)
        assert answer.status_code == 405
        assert answer.headers["content-type"] == "application/problem+json"

    @pytest.mark.parametrize("method", ["OPTIONS", "HEAD"])
    def test_no_method_goes_past_the_token(
        self, service: InProcess, method: str
    ) -> None:
        answer = service.http.request(method, REQUESTS)
        assert answer.status_code in (401, 405)
        assert "access-control-allow-origin" not in answer.headers

    def test_no_other_site_may_read_answers(self, service: InProcess) -> None:
        headers = {"Origin": "https://evil.example"}
        answer = service.call("GET", REQUESTS, headers=headers)
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
