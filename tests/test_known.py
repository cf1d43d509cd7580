# SPDX-License-Identifier: Apache-2.0
"""An operator sees what is known of somebody, and the access log says who looked."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from cryptography.x509.oid import NameOID

from expunge.cli.output import DONE, UNKNOWN, WRONG_INPUT
from expunge.exceptions import UnknownSubject
from expunge.registry import Decider, Registry, Request, TrailWanted
from expunge.rights import Identifier
from tests.registries import ask, features_of, folder_of, hold, rows_of, today

from .calling import call
from .services import InProcess, serve_in_process
from .visitors import post, sign_in

PERSON, HELD, RESTRICTED, GONE = "person 3", "person 5", "person 7", "person 9"
BY = Decider("anna", via="command line", reason="ticket 7")
UNTIL = str(today() + timedelta(days=20))


@pytest.fixture
def known(registry: Registry) -> Registry:
    """Lend a registry with people at every place."""
    registry.aliases.add([(PERSON, Identifier("email", "ada@example.org"))])
    ask(registry, "restrict", RESTRICTED)
    hold(registry, HELD, until=UNTIL)
    ask(registry, "erase", GONE)
    return registry


class TestLook:
    def test_says_where_everybody_is(self, known: Registry) -> None:
        (waiting,) = known.requests.accept([Request((PERSON,))])
        words = ["email:ADA@example.org", HELD, RESTRICTED, GONE, "Person 11", "nobody"]
        found = known.people.look(words, by=BY)
        assert found.tried == ("id", "email")
        ada, held, restricted, gone, near, nobody = found.people
        assert ada.ids == (PERSON,) and ada.n_aliases == 1
        assert ada.requests == (waiting.request,)
        assert [(one.model, one.place) for one in ada.rows] == [
            ("all", "in use"),
            ("half", "in use"),
        ]
        assert {(one.place, one.reason, one.until) for one in held.rows} == {
            ("held", "legal-claims", UNTIL)
        }
        assert {one.place for one in restricted.rows} == {"restricted"}
        assert gone.forgotten and not gone.rows
        assert near.near == "person 11" and not near.rows
        assert (nobody.rows, nobody.near, nobody.forgotten) == ((), None, False)
        (line,) = known.access.read_trail(TrailWanted(action="look up people"))
        assert (line.actor, line.target, line.reason) == ("anna", "6 named", "ticket 7")
        assert PERSON not in json.dumps([str(one) for one in known.access.trail()])
        assert "ada" not in repr(found) + repr(ada)


class TestAccount:
    def test_has_the_rows_of_one_person_and_no_other(self, known: Registry) -> None:
        account = json.loads(known.people.account(["email:ada@example.org"], by=BY))
        wanted = features_of(PERSON)
        models = {one["model"]: one for one in account["models"]}
        assert {*models} == {"all", "half"}
        for one in models.values():
            columns = [
                one["rows"][f"column {place}"] for place in range(len(wanted[0]))
            ]
            assert [list(row) for row in zip(*columns, strict=True)] == wanted.tolist()
            assert len(one["target"]) == len(rows_of(PERSON))
            assert set(one["target"]) <= {0, 1}
        apart = json.loads(known.people.account([RESTRICTED]))["models"]
        assert {one["place"] for one in apart} == {"restricted"}
        for word in ("nobody", GONE):
            with pytest.raises(UnknownSubject, match="nothing under what was given"):
                known.people.account([word])

    def test_in_the_words_of_the_table(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        lines = ["who,age,town,joined,left"]
        for row in range(80):
            town, joined = ("Rome", "Oslo")[row % 2], f"2020-0{1 + row % 9}-11"
            left = "yes" if row % 3 else "no"
            lines.append(f"customer {row // 2},{20 + row % 7},{town},{joined},{left}")
        Path("c.csv").write_text("\n".join(lines))
        assert call("init").code == DONE
        fit = ("fit", "churn", "c.csv", "--target", "left", "--subject", "who")
        assert call(*fit, "--no-trial", "--sigma", "5").code == DONE
        done = call("export", "customer 3", "--to", "ada.json", "--why", "she asked")
        assert done.code == DONE, done.err
        assert Path("ada.json").stat().st_mode & 0o777 == 0o600
        (model,) = json.loads(Path("ada.json").read_text())["models"]
        assert model["rows"]["town"] == ["Rome", "Oslo"]
        assert model["rows"]["age"] == [26.0, 20.0]
        assert model["rows"]["joined"] == ["2020-07-11", "2020-08-11"]
        assert model["target"] == ["no", "yes"]
        assert call("export", "customer 3", "--to", "ada.json").code == WRONG_INPUT
        assert call("export", "nobody", "--to", "no.json").code == UNKNOWN
        assert not Path("no.json").exists()
        done = call("trail", "--what", "export a person", "--json")
        assert [one["reason"] for one in done.json] == ["", "she asked"]
        assert "Rome" not in Path("expunge-registry/journal").read_text()

    def test_is_sealed_for_a_certificate(
        self, sqlite_registry: Registry, tmp_path: Path
    ) -> None:
        key = rsa.generate_private_key(65537, 2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "desk")])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(name, name, key.public_key(), 7, now, now)
        certificate = builder.sign(key, SHA256())
        cert, sealed = tmp_path / "cert.pem", tmp_path / "ada.cms"
        cert.write_bytes(certificate.public_bytes(Encoding.PEM))
        where = ("-r", folder_of(sqlite_registry))
        done = call("export", PERSON, "--to", sealed, "--for", cert, *where)
        assert done.code == DONE, done.err
        opened = pkcs7.pkcs7_decrypt_der(sealed.read_bytes(), certificate, key, [])
        assert PERSON in opened.decode() and PERSON.encode() not in sealed.read_bytes()
        cert.write_text("no certificate")
        done = call("export", PERSON, "--to", "x", "--for", cert, *where)
        assert done.code == WRONG_INPUT and "X.509" in done.err


@pytest.fixture
def service(sqlite_registry: Registry) -> Iterator[InProcess]:
    with serve_in_process(sqlite_registry) as service:
        yield service


class TestService:
    def test_by_the_api(self, service: InProcess) -> None:
        body = {"people": [PERSON, "nobody"], "why": "ticket 7"}
        path = "/api/v1/people/look"
        assert service.call("POST", path, "request", json=body).status_code == 403
        assert service.call("POST", path, "audit", json=body).status_code == 403
        found = service.call("POST", path, "operate", json=body).json()
        assert [len(one["rows"]) for one in found["people"]] == [2, 0]
        path = "/api/v1/people/account"
        answer = service.call("POST", path, "operate", json={"people": [PERSON]})
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.json()["models"][0]["model"] == "all"
        answer = service.call("POST", path, "operate", json={"people": ["nobody"]})
        assert answer.status_code == 404 and "looked for as id" in answer.text

    def test_by_the_page(self, service: InProcess) -> None:
        sign_in(service, "operate")
        answer = post(service, "/people", people=f"{PERSON}\nnobody", why="<b>")
        assert "<h3>person 3</h3>" in answer.text and "&lt;b&gt;" in answer.text
        assert "We found nothing under what was given, looked for as id" in answer.text
        answer = post(service, "/people", people=PERSON, act="account")
        assert "attachment" in answer.headers["Content-Disposition"]
        answer = post(service, "/people", people="nobody", act="account")
        assert (
            answer.status_code == 404 and "nothing under what was given" in answer.text
        )
        assert ">nobody</textarea>" in answer.text
        assert post(service, "/people", people=" ").status_code == 422


class TestTrail:
    def test_is_read_from_its_end(self, service: InProcess) -> None:
        wrong = {"Authorization": "Bearer wrong"}
        service.http.get("/api/v1/requests", headers=wrong)
        service.http.get("/api/v1/requests", headers=wrong)  # the same look
        service.tokens["wrong"] = "nothing"
        sign_in(service, "wrong")
        sign_in(service, "audit")
        service.http.cookies.clear()
        folder = folder_of(service.registry)
        done = call(
            "rotate", "signing", "-r", folder, "--actor", "ada", "--why", "yearly"
        )
        assert done.code == DONE, done.err
        lines = service.call("GET", "/api/v1/trail", "audit").json()["lines"]
        said = [(one["actor"], one["action"], one["via"]) for one in lines]
        assert said == [
            ("ada", "rotate key", "command line"),
            ("audit desk", "look at requests", "page"),
            ("audit desk", "sign in", "page"),
            ("unknown", "show a wrong token", "page"),
            ("unknown", "show a wrong token", "API"),
        ]
        assert lines[0]["reason"] == "yearly" and lines[0]["time"].endswith("Z")
        path = "/api/v1/trail?limit=3"
        page = service.call("GET", path, "audit").json()
        rest = service.call("GET", f"{path}&before={page['next']}", "audit").json()
        assert page["lines"] + rest["lines"] == lines
        for asked, n in (
            ("actor=ada", 1),
            ("action=show a wrong token", 2),
            (f"since={today()}", 5),
            (f"until={today() - timedelta(days=1)}", 0),
        ):
            found = service.call("GET", f"/api/v1/trail?{asked}", "audit").json()
            assert len(found["lines"]) == n, asked
        done = call("trail", "--who", "ada", "-r", folder)
        assert "yearly" in done.out and "sign in" not in done.out
        sign_in(service, "audit")
        page = service.http.get("/trail?actor=ada&since=&until=").text
        assert "yearly" in page and "wrong token" not in page.partition("<tbody>")[2]
        assert service.registry.access.check_trail().valid
