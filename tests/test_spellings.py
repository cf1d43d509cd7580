# SPDX-License-Identifier: Apache-2.0
"""Spellings: one person has one normal form, and a near miss is shown to operators."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from typer.testing import CliRunner

from expunge.cli.app import app
from expunge.cli.output import DONE, NEAR_MISS, UNKNOWN, WRONG_INPUT
from expunge.exceptions import InvalidInput
from expunge.ledger.keys import near_tag
from expunge.registry import ForgottenInData, Registry, Request
from expunge.rights import Identifier
from expunge.rights.identifiers import loosest
from tests.registries import (
    data,
    estimator,
    folder_of,
    tag_counts,
    tag_keys_of,
)

from .calling import call
from .services import apply_window, serve_in_process

N = 60


def address(number: int) -> str:
    """Return an address as its owner wrote it once."""
    return f"Hans.{number}@Example.org"


def by_address(number: int) -> list[str]:
    """Return such addresses, the second row of each person in another case."""
    one = address(number)
    return [one, one.upper()]


@pytest.fixture
def addresses(tmp_path: Path) -> Any:
    """Lend a registry whose people are known by addresses, in mixed case."""
    X, y, _ = data()
    owners = [one for number in range(N) for one in by_address(number)]
    with Registry.create(tmp_path / "expunge-registry") as registry:
        left_out = registry.fit(
            "mail", estimator(), X, y, subjects=owners, subject_kind="email"
        )
        assert left_out.n_merged == N  # as declared: they are one person each
        yield registry


@pytest.fixture
def exact(tmp_path: Path) -> Any:
    """Lend a registry whose ids are compared as they are."""
    X, y, owners = data()
    ids = [owner.replace("person", "customer") for owner in owners]
    with Registry.create(tmp_path / "expunge-registry") as registry:
        registry.fit("all", estimator(), X, y, subjects=ids)
        yield registry


class TestLoosest:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("customer 9", "CUSTOMER 9"),
            ("customer 9", " Customer\u00a0009"),
            ("customer 9", "customer\u200b9"),
            ("7", "7.0"),
            ("7", "007"),
            ("\uff21\uff24\uff21", "ada"),
            ("straße 1", "STRASSE 01"),
        ],
    )
    def test_spellings_of_one_word_share_it(self, one: str, other: str) -> None:
        assert loosest(one) == loosest(other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [("customer 9", "customer 90"), ("7", "70"), ("0", "1"), ("1.05", "1.5")],
    )
    def test_other_words_do_not(self, one: str, other: str) -> None:
        assert loosest(one) != loosest(other)

    def test_of_zero_is_zero(self) -> None:
        assert loosest("000") == loosest("0.0") == "0"


class TestDeclaredKind:
    def test_people_are_found_in_any_case(self, addresses: Registry) -> None:
        for word in ("HANS.7@EXAMPLE.ORG", "email:hans.7@Example.org", address(7)):
            assert addresses.aliases.resolve([word]) == ["hans.7@example.org"]
        assert addresses.requests.find_models(["hans.7@example.org"]) == {
            "hans.7@example.org": ("mail",)
        }

    def test_the_hash_of_a_main_address_finds_its_person(
        self, addresses: Registry
    ) -> None:
        digest = Identifier("email", address(8)).digest()
        word = f"email:sha256:{digest}"
        assert addresses.aliases.resolve([word]) == ["hans.8@example.org"]
        addresses.forget(addresses.aliases.resolve([word]))
        assert addresses.aliases.resolve([word]) == [word]  # it went with the person
        assert addresses.aliases.count() == 0

    def test_an_address_may_be_an_id_here_and_an_alias_there(
        self, addresses: Registry
    ) -> None:
        X, y, owners = data()
        addresses.fit("all", estimator(), X, y, subjects=owners)
        addresses.aliases.add([("person 3", Identifier("email", address(3)))])
        word = f"email:{address(3)}"
        ids = ["hans.3@example.org", "person 3"]
        assert addresses.aliases.resolve([word]) == ids

    def test_what_is_not_of_the_kind_is_refused_by_its_row(
        self, addresses: Registry
    ) -> None:
        X, y, _ = data()
        owners = [address(row) for row in range(len(X))]
        owners[4] = "no address"
        with pytest.raises(InvalidInput, match="rows 4, counted from 0") as caught:
            addresses.models.refit(
                "mail", estimator(), X, y, subjects=owners, subject_kind="email"
            )
        assert "no address" not in str(caught.value)

    def test_added_rows_are_of_the_same_kind(self, addresses: Registry) -> None:
        X, y, _ = data()
        addresses.add("mail", X[:2], y[:2], subjects=["NEW@example.org", address(1)])
        digest = Identifier("email", "new@example.org").digest()
        found = addresses.aliases.resolve([f"email:sha256:{digest}"])
        assert found == ["new@example.org"]

    def test_rows_of_people_who_are_there_are_added(self, addresses: Registry) -> None:
        X, y, _ = data()
        addresses.add("mail", X[:1], y[:1], subjects=[address(1).upper()])

    def test_nobody_comes_back_in_another_case(self, addresses: Registry) -> None:
        X, y, _ = data()
        owners = [one for number in range(N) for one in by_address(number)]
        addresses.forget(["hans.5@example.org"])
        with pytest.raises(ForgottenInData):
            addresses.models.refit(
                "mail", estimator(), X, y, subjects=owners, subject_kind="email"
            )


class TestTwoModels:
    """One knows people by their addresses, the other by numbers, with aliases."""

    @pytest.fixture
    def both(self, addresses: Registry) -> Registry:
        X, y, owners = data()
        addresses.fit("all", estimator(), X, y, subjects=owners)
        pairs = [
            (f"person {one}", Identifier("email", address(one))) for one in range(N)
        ]
        addresses.aliases.add(pairs)
        return addresses

    @pytest.mark.parametrize("models", [("all",), ("mail",), ("all", "mail")])
    def test_a_rectification_reaches_each_model(
        self, both: Registry, models: tuple[str, ...]
    ) -> None:
        rows = {name: {"X": [[0.0] * 4], "y": [1]} for name in models}
        with serve_in_process(both, window=1) as service:
            requests = []
            for email in (address(3).upper(), "nobody@example.org"):
                body = {"right": "rectify", "people": [{"email": email}], "rows": rows}
                answer = service.call("POST", "/api/v1/requests", "request", json=body)
                assert answer.status_code == 201, answer.text
                requests.append(answer.json()["id"])
            assert len({*tag_counts(both, requests).values()}) == 1
            apply_window(service)
        receipts = [both.requests.receipt(one) for one in requests]
        known, stranger = (json.loads(one or "")["entry"] for one in receipts)
        assert (known["outcome"], stranger["outcome"]) == ("done", "nothing found")
        assert sorted(known["certificates"]) == sorted(models)

    def test_rows_are_of_one_id_in_each_model(self, both: Registry) -> None:
        ids = ("hans.3@example.org", "person 3", "person 4")
        chosen = both.aliases.choose_holders(ids, ["all", "mail"])
        assert chosen[:2] == ids[:2] and chosen[2].startswith("nobody:")
        chosen = both.aliases.choose_holders(ids, ["all"])
        assert [one in ids for one in chosen] == [False, True, False]

    def test_commands_count_a_person_once(
        self, both: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EXPUNGE_REGISTRY", str(folder_of(both)))
        done = call("forget", f"email:{address(5)}", "person 5", "person 6", "--json")
        assert done.code == DONE, done.err
        (entry,) = (one["receipt"]["entry"] for one in done.json["requests"])
        assert entry["n_subjects"] == 2
        assert sorted(entry["certificates"]) == ["all", "mail"]


class TestFits:
    def test_another_spelling_does_not_bring_somebody_back(
        self, exact: Registry
    ) -> None:
        X, y, owners = data()
        exact.forget(["customer 9"])
        shouted = [owner.replace("person", "CUSTOMER") for owner in owners]
        with pytest.raises(ForgottenInData) as caught:
            exact.fit("loud", estimator(), X, y, subjects=shouted)
        assert (caught.value.n_people, caught.value.n_near) == (1, 1)
        assert caught.value.rows == (18, 19)
        left = exact.fit(
            "loud", estimator(), X, y, subjects=shouted, without_forgotten=True
        )
        assert (left.n_rows, left.n_people) == (2, 1)
        exact.fit("others", estimator(), X, y, subjects=shouted, exact=True)

    def test_whoever_comes_back_may_be_spelled_anyhow(self, exact: Registry) -> None:
        X, y, _ = data()
        exact.forget(["customer 9"])
        exact.requests.readmit(["CUSTOMER 9"])
        with pytest.raises(ForgottenInData) as caught:
            exact.add("all", X[:1], y[:1], subjects=["customer 9"])
        assert caught.value.n_near == 0
        exact.add("all", X[:1], y[:1], subjects=["CUSTOMER 9"])

    def test_tags_are_worth_nothing_without_their_key(self, exact: Registry) -> None:
        folder, (key,) = folder_of(exact), tag_keys_of(exact)
        stored = (folder / "expunge.db").read_bytes()
        assert near_tag("customer 9", key).encode() in stored
        assert b"customer 9" not in stored and b"customer9" not in stored


class TestCommands:
    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        X, y, _ = data()
        lines = ["who,a,b,left"]
        lines += [
            f"{by_address(row // 2)[row % 2]},{X[row, 0]:.4f},{X[row, 1]:.4f},{y[row]}"
            for row in range(len(X))
        ]
        Path("people.csv").write_text("\n".join(lines))
        assert call("init").code == DONE
        return tmp_path / "expunge-registry"

    FIT = ("fit", "churn", "people.csv", "--target", "left", "--no-trial")
    AS_THEY_ARE = ("--subject", "who", "--subject-kind", "id")

    def test_a_kind_is_declared_once(self, folder: Path) -> None:
        done = call(*self.FIT, "--subject", "who", "--subject-kind", "email")
        assert done.code == DONE, done.err
        assert f"merged: {N} ids" in done.err
        assert call("forget", "HANS.3@EXAMPLE.ORG").code == DONE
        assert call("forget", f"email:{address(4)}").code == DONE
        digest = Identifier("email", address(5)).digest()
        assert call("forget", f"email:sha256:{digest}").code == DONE
        done = call("forget", "email:nobody@example.org")
        assert done.code == UNKNOWN
        assert "looked for as id, email" in done.err

    def test_ids_that_are_addresses_need_a_kind(self, folder: Path) -> None:
        done = call(*self.FIT, "--subject", "who")
        assert done.code == WRONG_INPUT
        assert "column 'who'" in done.err and "--subject-kind email" in done.err
        lines = Path("people.csv").read_text().splitlines()
        Path("people.csv").write_text("\n".join([*lines, "007,0.1,0.2,0"]))
        assert call(*self.FIT, "--subject", "who").code == DONE

    @pytest.mark.parametrize(
        "word",
        [
            f"mailto:{address(4).lower()}",
            f"Email: {address(4)}",
            f"who:{address(4).lower()}",
        ],
    )
    def test_a_kind_that_is_none_hides_nobody(self, folder: Path, word: str) -> None:
        kind = ("--subject", "who", "--subject-kind", "email")
        assert call(*self.FIT, *kind).code == DONE
        done = call("forget", word, "--answer-strangers")
        assert done.code == NEAR_MISS, done.out
        assert "held as 'hans.4@example.org'" in done.err
        stranger = word.replace("4@", "400@").replace("ANS.4", "ANS.400")
        assert call("forget", stranger, "--answer-strangers").code == DONE

    def test_spaces_in_an_id_are_shown(
        self, exact: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EXPUNGE_REGISTRY", str(folder_of(exact)))
        done = call("forget", "customer  5", "--answer-strangers")
        assert done.code == NEAR_MISS
        assert "'customer  5' (held as 'customer 5')" in done.err

    def test_numbers_of_another_kind_are_no_ids(
        self, exact: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        exact.aliases.add([("customer 3", Identifier("seat", "customer 4"))])
        monkeypatch.setenv("EXPUNGE_REGISTRY", str(folder_of(exact)))
        assert call("forget", "seat:customer 4").code == DONE
        assert exact.requests.find_models(["customer 4"])["customer 4"]

    def test_a_near_miss_is_not_answered(self, folder: Path) -> None:
        assert call(*self.FIT, *self.AS_THEY_ARE).code == DONE
        done = call("forget", "hans.3@Example.org", "--answer-strangers")
        assert done.code == NEAR_MISS
        assert "held as" in done.err and "HANS.3@EXAMPLE.ORG" in done.err
        with Registry.open(folder) as registry:
            assert registry.status().n_requests == 0
        words = ("forget", "hans.3@Example.org", "--answer-strangers", "--exact")
        done = call(*words)
        assert done.code == DONE
        assert json.loads(done.out)["entry"]["outcome"] == "nothing found"
        found = CliRunner().invoke(app, ["status", "--near"])
        assert found.exit_code == NEAR_MISS  # the operator may still think again
        (request,) = found.stdout.split()
        assert call("exact", request).code == DONE
        assert call("status", "--near").code == DONE

    def test_an_address_is_an_id_without_a_declaration(self, folder: Path) -> None:
        text = Path("people.csv").read_text().lower()
        Path("people.csv").write_text(text)
        assert call(*self.FIT, *self.AS_THEY_ARE).code == DONE
        assert call("forget", f"email:{address(6)}").code == DONE

    @pytest.mark.parametrize("options", [(), ("--keep-rows", "lake", "--drop", "id")])
    @pytest.mark.parametrize("table", ["floats", "visits"])
    def test_no_kind_of_column_hides_who_comes_back(
        self, folder: Path, table: str, options: tuple[str, ...]
    ) -> None:
        """Integers with a gap become floats, and visits repeat each person."""
        X, y, _ = data()
        ids = [1000.0 + row // 2 for row in range(len(X))]
        columns: dict[str, Any] = {"id": ids, "a": [*X[:, 0]], "left": [*y]}
        pq.write_table(pa.table(columns | {"id": [*map(int, ids)]}), "first.parquet")
        first = ("first.parquet", "--target", "left", "--no-trial", "--subject", "id")
        assert call("fit", "first", *first).code == DONE
        assert call("forget", "1007").code == DONE
        if table == "floats":
            columns["id"] = [None, *ids[1:]]
        else:
            columns = {name: [*values] * 10 for name, values in columns.items()}
            columns["id"] = [int(one) for one in columns["id"]]
        pq.write_table(pa.table(columns), "again.parquet")
        again = ("again.parquet", "--target", "left", "--no-trial", "--no-subject")
        done = call("fit", "again", *again, *options)
        assert done.code == WRONG_INPUT
        assert "column 'id'" in done.err and "1 person who were" in done.err

    def test_a_table_without_owners_brings_nobody_back(self, folder: Path) -> None:
        fit = [*self.FIT, "--subject", "who", "--subject-kind", "email"]
        assert call(*fit).code == DONE
        assert call("forget", address(7)).code == DONE
        fit = ["fit", "again", *self.FIT[2:], "--no-subject", "--drop", "who"]
        done = call(*fit)
        assert done.code == WRONG_INPUT
        assert "column 'who'" in done.err and "2 people" in done.err
        assert address(7) not in done.err
        assert call(*fit, "--exact").code == DONE


class TestService:
    def send(self, service: Any, **person: str) -> str:
        answer = service.call(
            "POST", "/api/v1/requests", "request", json={"people": [person]}
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def outcome(self, service: Any, request: str) -> str:
        return str(service.registry.requests.status(request).outcome)

    def test_every_spelling_and_hash_finds_its_person(
        self, addresses: Registry
    ) -> None:
        digest = Identifier("email", address(4)).digest()
        with serve_in_process(addresses) as service:
            sent = [
                self.send(service, id="HANS.1@EXAMPLE.ORG"),
                self.send(service, email="hans.2@example.org"),
                self.send(service, email=f" {address(3)}"),
                self.send(service, email=f"sha256:{digest}"),
            ]
            stranger = self.send(service, email="eve@example.org")
            apply_window(service)
            assert {self.outcome(service, one) for one in sent} == {"done"}
            assert self.outcome(service, stranger) == "nothing found"

    def test_kinds_of_ids_leave_their_aliases_on(self, registry: Registry) -> None:
        registry.aliases.add([("person 3", Identifier("email", "ada@example.org"))])
        kinds = {"id_kinds": ("id", "email", "customer")}
        with serve_in_process(registry, **kinds) as service:
            by_alias = self.send(service, email="Ada@example.org")
            by_id = self.send(service, email="person 4")
            apply_window(service)
            assert self.outcome(service, by_alias) == "done"
            assert self.outcome(service, by_id) == "done"

    def test_an_id_is_not_somebody_elses_alias(self, registry: Registry) -> None:
        registry.aliases.add([("person 3", Identifier("customer", "person 4"))])
        with serve_in_process(registry, id_kinds=("customer",)) as service:
            self.send(service, customer="person 4")
            apply_window(service)
            held = registry.requests.find_models(["person 3", "person 4"])
            assert held == {"person 3": ("all", "half"), "person 4": ()}

    def test_a_near_miss_of_an_alias_is_seen_too(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pairs = [("person 3", "AB-07"), ("person 4", "AB-8"), ("no one", "AB-9")]
        registry.aliases.add(
            [(owner, Identifier("loyalty", word)) for owner, word in pairs]
        )
        with serve_in_process(registry) as service:
            near = self.send(service, loyalty="ab-7")
            others = [
                self.send(service, loyalty=word) for word in ("AB-8", "AB-6", "ab-9")
            ]
            other_kind = self.send(service, card="ab-7")
            path = "/api/v1/near-misses"
            listed = service.call("GET", path, "operate").json()
            assert listed == {"requests": [near]}
            apply_window(service)
            assert self.outcome(service, near) == "nothing found"
            assert self.outcome(service, other_kind) == "nothing found"
            assert self.outcome(service, others[0]) == "done"
            listed = service.call("GET", path, "operate").json()
            assert listed == {"requests": [near]}
        monkeypatch.setenv("EXPUNGE_REGISTRY", str(folder_of(registry)))
        done = call("forget", "loyalty:ab-7", "--answer-strangers")
        assert done.code == NEAR_MISS and "loyalty:ab-7" in done.err
        assert call("forget", "loyalty:AB-07").code == DONE

    def test_a_kind_that_is_none_hides_nobody(self, registry: Registry) -> None:
        with serve_in_process(registry) as service:
            near = {
                self.send(service, id="Person: person 3"),
                self.send(service, mail="who:person 4"),
            }
            self.send(service, id="Person: nobody")
            path = "/api/v1/near-misses"
            listed = service.call("GET", path, "operate").json()["requests"]
            assert {*listed} == near

    def test_an_address_and_more_is_refused(self, registry: Registry) -> None:
        with serve_in_process(registry, id_kinds=("id", "email")) as service:
            for text in ("Ada <ada@example.org>", "mailto:ada@example.org"):
                body = {"people": [{"email": text}]}
                path = "/api/v1/requests"
                answer = service.call("POST", path, "request", json=body)
                assert answer.status_code == 422
                assert "ada" not in answer.text

    def test_only_operators_see_a_near_miss(self, registry: Registry) -> None:
        with serve_in_process(registry) as service:
            near = self.send(service, id="PERSON 5")
            far = self.send(service, id="STRANGER")
            own = self.send(service, id="person 6")
            shown = [
                service.call("GET", f"/api/v1/requests/{one}", "request").json()
                for one in (near, far, own)
            ]
            for one in shown:
                del one["id"]
            assert shown[0] == shown[1] == shown[2]
            path = "/api/v1/near-misses"
            for scope in ("request", "audit"):
                assert service.call("GET", path, scope).status_code == 403
            assert service.call("GET", path, "operate").json() == {"requests": [near]}
            apply_window(service)
            assert self.outcome(service, near) == "nothing found"
            # Still there for an operator who comes later.
            assert service.call("GET", path, "operate").json() == {"requests": [near]}
            path_of = f"/api/v1/requests/{near}/exact"
            assert service.call("POST", path_of, "request").status_code == 403
            assert service.call("POST", path_of, "operate").status_code == 200
            assert service.call("GET", path, "operate").json() == {"requests": []}

    def test_a_cancelled_request_is_no_near_miss(self, registry: Registry) -> None:
        (status,) = registry.requests.accept([Request(("PERSON 5",))], strangers=True)
        assert registry.requests.near_misses() == {status.request}
        registry.requests.cancel(status.request)
        assert registry.requests.near_misses() == set()
