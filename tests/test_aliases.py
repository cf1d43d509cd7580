# SPDX-License-Identifier: Apache-2.0
"""Aliases lead to people, on each kind of store, and go with them."""

import shutil
from base64 import b64encode
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from expunge.exceptions import Busy, InvalidInput, StoreFailed, UnknownSubject
from expunge.ledger.keys import alias_seal_key, alias_tag
from expunge.registry import AliasesAdded, AmbiguousAlias, Registry, Request
from expunge.rights import Identifier
from expunge.rights.standing import Right
from tests.registries import (
    aliases_of,
    apply_and_stop,
    by_name,
    data_without,
    dump_of,
    estimator,
    exchange_alias,
    put_back,
    registry_at,
    require_consistent,
    set_clock,
    tag_keys_of,
    today,
    unseal,
)

ADDRESS = "ada@example.org"
ADA = Identifier("email", ADDRESS)
EVE = Identifier("email", "eve@example.org")
PHONE = Identifier("phone", "+44 20 7946 0958")


def hashed(identifier: Identifier) -> Identifier:
    raw = sha256(identifier.value.encode()).digest()
    return Identifier(identifier.kind, b64encode(raw).decode(), hashed=True)


def number(i: int) -> Identifier:
    return Identifier("customer", f"c{i}")


class TestAdd:
    def test_every_form_finds_the_person(self, registry: Registry) -> None:
        added = registry.aliases.add([("person 3", ADA), ("person 4", hashed(PHONE))])
        assert added == AliasesAdded(n_added=2, n_known=0, n_left_out=0)
        assert registry.aliases.count() == 2
        for one in (ADA, hashed(ADA), Identifier("email", f" {ADDRESS.upper()}")):
            assert registry.aliases.find([one]) == {ADA: "person 3"}
        assert registry.aliases.find([PHONE])[PHONE] == "person 4"

    def test_strangers_are_not_found(self, registry: Registry) -> None:
        registry.aliases.add([("person 3", ADA)])
        other_kind = Identifier("login", ADDRESS)
        assert registry.aliases.find([EVE, other_kind]) == {}
        assert registry.aliases.find([EVE, ADA]) == {ADA: "person 3"}
        assert registry.aliases.find([]) == {}

    def test_again_changes_nothing(self, registry: Registry) -> None:
        pairs = [("person 3", ADA), (" person 3", hashed(ADA)), ("person 3", PHONE)]
        assert registry.aliases.add(pairs) == AliasesAdded(2, 1, 0)
        before = aliases_of(registry)
        assert registry.aliases.add(pairs) == AliasesAdded(0, 3, 0)
        assert aliases_of(registry) == before

    def test_nobody_needs_to_be_in_a_model_yet(self, registry: Registry) -> None:
        registry.aliases.add([("newcomer", ADA)])
        assert registry.aliases.find([ADA]) == {ADA: "newcomer"}

    def test_ids_are_spelled_one_way(self, registry: Registry) -> None:
        registry.aliases.add([("Zoe\u0308 ", ADA), (7, EVE)])
        assert registry.aliases.find([ADA, EVE]) == {ADA: "Zo\u00eb", EVE: "7"}

    def test_more_than_one_statement_holds(self, registry: Registry) -> None:
        n = 1203
        registry.aliases.add([(i // 3, number(i)) for i in range(n)])
        registry.aliases.add([(i // 3, number(i)) for i in range(n + 5)])
        assert registry.aliases.count() == n + 5
        found = registry.aliases.find([number(i) for i in range(n + 9)])
        assert found == {number(i): str(i // 3) for i in range(n + 5)}

    def test_progress_ends_where_it_said(self, registry: Registry) -> None:
        seen: list[tuple[int, int]] = []
        registry.aliases.add(
            [("person 3", ADA), ("person 3", PHONE)],
            on_progress=lambda done, total: seen.append((done, total)),
        )
        assert seen == sorted(seen) and seen[0] == (0, 4) and seen[-1] == (4, 4)

    def test_id_needs_no_alias(self, registry: Registry) -> None:
        pairs = [("person 3", ADA), ("person 3", Identifier("id", "person 3"))]
        with pytest.raises(InvalidInput, match=r"pair 1, .* needs no alias"):
            registry.aliases.add(pairs)
        assert registry.aliases.count() == 0

    @pytest.mark.parametrize("bad", [None, "", 1.5])
    def test_person_has_an_id(self, registry: Registry, bad: object) -> None:
        with pytest.raises(InvalidInput, match="cannot be the id"):
            registry.aliases.add([("person 3", ADA), (bad, PHONE)])
        assert registry.aliases.count() == 0


class TestAmbiguity:
    def test_two_people_in_one_import(self, registry: Registry) -> None:
        pairs = [
            ("person 3", number(0)),
            ("person 3", ADA),
            ("person 4", number(1)),
            ("person 4", hashed(ADA)),
        ]
        with pytest.raises(AmbiguousAlias, match=r"^2 pairs .*: 1, 3,") as error:
            registry.aliases.add(pairs)
        assert error.value.positions == (1, 3)
        assert "person 3" not in str(error.value) and "ada" not in str(error.value)
        assert registry.aliases.count() == 0

    def test_somebody_else_has_it(self, registry: Registry) -> None:
        registry.aliases.add([("person 3", ADA)])
        before = aliases_of(registry)
        with pytest.raises(AmbiguousAlias, match="somebody else already") as error:
            registry.aliases.add([("person 4", PHONE), ("person 4", ADA)])
        assert error.value.positions == (1,)
        assert "person 3" not in str(error.value) and "person 4" not in str(error.value)
        assert aliases_of(registry) == before

    def test_it_can_change_hands_when_removed(self, registry: Registry) -> None:
        registry.aliases.add([("person 3", ADA), ("person 3", PHONE)])
        assert registry.aliases.remove([hashed(ADA), EVE]) == 1
        registry.aliases.add([("person 4", ADA)])
        found = registry.aliases.find([ADA, PHONE])
        assert found == {ADA: "person 4", PHONE: "person 3"}

    def test_many_are_told_in_few_words(self, registry: Registry) -> None:
        pairs = [(person, number(i)) for i in range(40) for person in ("a", "b")]
        with pytest.raises(AmbiguousAlias, match=r"80 pairs .* and 70 more") as error:
            registry.aliases.add(pairs)
        assert len(str(error.value)) < 250 and len(error.value.positions) == 80


class TestKeys:
    def test_old_tags_are_found_after_a_rotation(self, registry: Registry) -> None:
        registry.aliases.add([("person 3", ADA)])
        registry.keys.rotate_tag_key()
        registry.aliases.add([("person 4", PHONE)])
        assert registry.aliases.find([ADA, PHONE]) == {
            ADA: "person 3",
            PHONE: "person 4",
        }
        assert registry.aliases.add([("person 3", ADA)]) == AliasesAdded(0, 1, 0)
        with pytest.raises(AmbiguousAlias):
            registry.aliases.add([("person 5", ADA)])
        assert registry.aliases.remove([ADA, PHONE]) == 2

    @pytest.mark.parametrize("rotated", ["before", "while it waits", "never"])
    def test_aliases_go_under_whatever_key(
        self, registry: Registry, rotated: str
    ) -> None:
        """A request names the tags of its day, and the alias may come later."""
        if rotated == "before":
            registry.keys.rotate_tag_key()
        registry.requests.accept([Request(("person 3",))])
        if rotated == "while it waits":
            registry.keys.rotate_tag_key()
        registry.aliases.add([("person 3", ADA), ("person 4", EVE)])
        registry.requests.apply()
        assert registry.aliases.find([ADA, EVE]) == {EVE: "person 4"}
        assert registry.aliases.count() == 1

    def test_rotation_in_between_is_noticed(self, registry: Registry) -> None:
        """Under the old keys alone, aliases of the new one would be overlooked."""

        def rotate(done: int, total: int) -> None:
            registry.keys.rotate_tag_key()
            registry.aliases.add([("person 4", ADA)])

        with pytest.raises(Busy, match="run the command again"):
            registry.aliases.add([("person 3", ADA)], on_progress=rotate)
        assert registry.aliases.find([ADA]) == {ADA: "person 4"}

    def test_tag_key_alone_does_not_open_a_line(self, registry: Registry) -> None:
        registry.aliases.add([("person 3", ADA)])
        (line,) = aliases_of(registry)
        (key,) = tag_keys_of(registry)
        assert line.tag == alias_tag(ADA, key)
        place = f"alias {line.tag}"
        assert unseal(line.sealed, alias_seal_key(ADA, key), place=place) == b"person 3"
        for wrong in (key.secret, alias_seal_key(EVE, key)):
            with pytest.raises(StoreFailed):
                unseal(line.sealed, wrong, place=place)

    def test_lines_cannot_be_exchanged(self, registry: Registry) -> None:
        """Who writes to the database must not send a request to somebody else."""
        registry.aliases.add([("person 3", ADA), ("person 4", EVE)])
        (key,) = tag_keys_of(registry)
        mine, other = alias_tag(ADA, key), alias_tag(EVE, key)
        exchange_alias(registry, mine, other)
        with pytest.raises(StoreFailed, match="altered"):
            registry.aliases.find([ADA])


class TestErasure:
    def test_aliases_go_with_their_person(self, registry: Registry) -> None:
        registry.aliases.add(
            [("person 3", ADA), ("person 3", PHONE), ("person 4", EVE)]
        )
        registry.requests.accept([Request(("person 3", "person 5"))])
        assert registry.aliases.count() == 3
        registry.requests.apply()
        assert registry.aliases.find([ADA, PHONE, EVE]) == {EVE: "person 4"}
        assert registry.aliases.count() == 1

    def test_forgotten_people_get_no_alias(self, registry: Registry) -> None:
        registry.forget(["person 3"])
        pairs = [("person 3", ADA), ("person 4", EVE)]
        assert registry.aliases.add(pairs) == AliasesAdded(1, 0, 1)
        assert registry.aliases.find([ADA, EVE]) == {EVE: "person 4"}
        registry.requests.readmit(["person 3"])
        assert registry.aliases.add(pairs) == AliasesAdded(1, 1, 0)

    def test_even_if_completion_was_held_up(self, registry: Registry) -> None:
        """Between applying and completing, neither table nor journal names them."""
        registry.requests.accept([Request(("person 3",))])
        apply_and_stop(registry)
        assert registry.aliases.add([("person 3", ADA)]) == AliasesAdded(0, 0, 1)
        assert registry.aliases.count() == 0

    def test_a_restriction_leaves_them_and_an_erasure_does_not(
        self, registry: Registry
    ) -> None:
        registry.aliases.add([("person 3", ADA)])
        stages: tuple[tuple[Right, int], ...]
        stages = (("restrict", 1), ("lift", 1), ("erase", 0))
        for right, left in stages:
            (person,) = registry.aliases.find([ADA]).values()
            registry.requests.accept([Request((person,), right=right)])
            registry.requests.apply()
            assert registry.aliases.count() == left

    def test_a_hold_leaves_them_until_its_end(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry.aliases.add([("person 3", ADA)])
        end = today()
        held = Request(("person 3",), right="hold", reason="legal-claims", until=end)
        registry.requests.accept([held])
        registry.requests.apply()
        assert registry.aliases.count() == 1
        set_clock(monkeypatch, end + timedelta(days=1))
        registry.requests.apply()
        assert registry.aliases.count() == 0

    def test_aliases_of_a_model_that_left_stay(self, registry: Registry) -> None:
        registry.aliases.add([("person 3", ADA)])
        registry.models.remove("half")
        registry.models.remove("all")
        assert registry.aliases.find([ADA]) == {ADA: "person 3"}

    def test_no_bytes_are_left(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"

        def everything() -> bytes:
            return b"".join(
                path.read_bytes()
                for path in sorted(folder.rglob("*"))
                if path.is_file() and path.name != "journal"
            )

        with registry_at(folder) as registry:
            registry.aliases.add([("person 3", ADA), ("person 4", EVE)])
            gone, stays = sorted(
                aliases_of(registry),
                key=lambda line: line.tag not in tag_of(registry, ADA),
            )
            traces = [gone.tag.encode(), gone.person.encode(), gone.sealed]
            before = everything()
            assert all(trace in before for trace in traces)
            assert ADDRESS.encode() not in before and b"person 3" not in before
            registry.forget(["person 3"])
            after = everything()
            assert not any(trace in after for trace in traces)
            assert stays.tag.encode() in after
            registry.aliases.remove([EVE])
            assert stays.tag.encode() not in everything()

    def test_refits_keep_aliases(self, registry: Registry) -> None:
        registry.aliases.add([("person 3", ADA)])
        registry.models.refit("half", estimator(), **by_name(data_without("person 3")))
        assert registry.aliases.find([ADA]) == {ADA: "person 3"}


def tag_of(registry: Registry, one: Identifier) -> str:
    return alias_tag(one, tag_keys_of(registry)[0])


class TestRestore:
    def test_backup_brings_no_alias_back(self, tmp_path: Path) -> None:
        folder, backup = tmp_path / "registry", tmp_path / "backup"
        with registry_at(folder) as registry:
            registry.aliases.add([("person 3", ADA), ("person 4", EVE)])
            (waiting,) = registry.requests.accept([Request(("person 5",))])
            registry.aliases.add([("person 5", number(5))])
        shutil.copytree(folder, backup)
        with Registry.open(folder) as registry:
            registry.requests.apply()
            registry.forget(["person 3"])
            registry.aliases.add([("person 6", PHONE)])
        with Registry.restore(folder, backup) as registry:
            assert registry.requests.status(waiting.request).stage == "completed"
            assert registry.aliases.find([ADA, EVE, number(5)]) == {EVE: "person 4"}
            # Added after the backup, and the journal does not know it.
            assert registry.aliases.find([PHONE]) == {}
            assert registry.aliases.count() == 1
            require_consistent(registry)

    def test_on_postgresql(self, tmp_path: Path, database_url: str) -> None:
        folder, backup = tmp_path / "registry", tmp_path / "backup"
        with registry_at(folder, database_url) as registry:
            registry.aliases.add([("person 3", ADA), ("person 4", EVE)])
            shutil.copytree(folder, backup)
            dump = dump_of(registry)
            registry.forget(["person 3"])
            put_back(registry, dump)
        with Registry.restore(folder, backup) as registry:
            assert registry.aliases.find([ADA, EVE]) == {EVE: "person 4"}
            assert registry.aliases.count() == 1


class TestResolve:
    @pytest.fixture
    def named(self, registry: Registry) -> Registry:
        """Lend a registry with people whose ids look like identifiers."""
        X, y, owners = data_without()
        odd = {"person 0": "urn:x:1", "person 1": "email:broken", "person 2": "id:9"}
        ids = [odd.get(owner, owner) for owner in owners]
        registry.fit("odd", estimator(), X, y, subjects=ids)
        registry.aliases.add(
            [("person 3", ADA), ("person 4", Identifier("urn", "x:2"))]
        )
        return registry

    @pytest.mark.parametrize(
        ("word", "meant"),
        [
            ("person 7", "person 7"),
            (" person 7", "person 7"),
            (f"email:{ADDRESS}", "person 3"),
            (f"email: {ADDRESS.upper()} ", "person 3"),
            (f"email:sha256:{ADA.digest()}", "person 3"),
            ("urn:x:2", "person 4"),
            # Ids that hold colons are found as they always were.
            ("urn:x:1", "urn:x:1"),
            ("email:broken", "email:broken"),
            ("id:urn:x:1", "urn:x:1"),
            ("id:email:broken", "email:broken"),
            ("id:person 7", "person 7"),
            ("id:id:9", "id:9"),
            # Strangers stay strangers, and what refuses them names them.
            ("email:nobody@example.org", "email:nobody@example.org"),
            ("urn:x:3", "urn:x:3"),
            ("a:", "a:"),
            (7, "7"),
        ],
    )
    def test_words(self, named: Registry, word: object, meant: str) -> None:
        assert named.aliases.resolve([word, "person 9"]) == [meant, "person 9"]

    @pytest.mark.parametrize("word", ["email:typo", "phone:123", "x:sha256:00"])
    def test_malformed_words_are_refused(self, named: Registry, word: str) -> None:
        with pytest.raises(InvalidInput, match="kind"):
            named.aliases.resolve([word])

    def test_doubt_is_refused(self, named: Registry) -> None:
        named.aliases.add([("person 5", Identifier("urn", "x:1"))])
        with pytest.raises(AmbiguousAlias, match="write id: before it"):
            named.aliases.resolve(["urn:x:1"])
        assert named.aliases.resolve(["id:urn:x:1"]) == ["urn:x:1"]
        with pytest.raises(AmbiguousAlias):
            named.aliases.resolve(["id:9"])

    def test_doubt_about_one_person_is_none(self, named: Registry) -> None:
        named.aliases.add([("urn:x:1", Identifier("urn", "x:1"))])
        assert named.aliases.resolve(["urn:x:1"]) == ["urn:x:1"]

    def test_whoever_was_found_is_forgotten(self, named: Registry) -> None:
        ids = named.aliases.resolve([f"email:{ADDRESS}"])
        named.forget(ids)
        assert named.requests.find_forgotten(["person 3"]) == ("person 3",)
        with pytest.raises(UnknownSubject):
            named.forget(named.aliases.resolve([f"email:{ADDRESS}"]))
