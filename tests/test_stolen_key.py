# SPDX-License-Identifier: Apache-2.0
"""A signing key that was stolen signs nothing more once it was rotated.

The thief has everything that is public, and the secret key from before the rotation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from expunge.cli.output import DONE, NOT_VALID
from expunge.ledger import (
    Entry,
    KeyRotated,
    SigningKey,
    check_consistency,
    check_export,
    check_receipt,
    export,
    open_signing_key,
    sign,
)
from expunge.ledger.ledger import hash_entry
from expunge.ledger.merkle import build_nodes, consistency_proof
from expunge.ledger.receipts import AS_OF_THE_LIST, RETIRED
from tests.calling import call
from tests.forgery import forged_receipt, made_up, signed_head
from tests.registries import registry_at


@dataclass(frozen=True)
class Scene:
    """What is public of a registry around a rotation, and what the thief has."""

    stolen: SigningKey
    before: str
    receipt: str
    old_list: str
    new_list: str
    entries: tuple[Entry, ...]
    export: bytes

    @property
    def rotation(self) -> int:
        """The place of the rotation."""
        kinds = [isinstance(entry, KeyRotated) for entry in self.entries]
        return kinds.index(True)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("stolen") / "registry"
    with registry_at(folder) as registry:
        stolen = open_signing_key(folder / "keys" / "signing-0.pem", create=False)
        old_list = registry.keys.public_pem()
        before = registry.forget(["person 1"])
        registry.keys.rotate_signing_key()
        after = registry.forget(["person 2"])
        published = (folder / "public.pem").read_text()
        assert published == registry.keys.public_pem() != old_list
        entries, lines = tuple(registry.ledger.entries()), registry.ledger.export()
    return Scene(stolen, before, after, old_list, published, entries, lines)


class TestReceipts:
    def test_made_up_after_the_rotation(self, scene: Scene) -> None:
        entries = [*scene.entries, made_up(scene.entries)]
        verdict = check_receipt(forged_receipt(entries, scene.stolen), scene.new_list)
        assert not verdict.valid
        assert f"its head is over {len(entries)} entries" in verdict.says
        assert "may have been stolen" in verdict.says

    def test_made_up_in_the_place_of_the_rotation(self, scene: Scene) -> None:
        entries = list(scene.entries[: scene.rotation])
        entries.append(made_up(entries))
        forged = forged_receipt(entries, scene.stolen)
        assert not check_receipt(forged, scene.new_list).valid

    def test_on_the_command_line(self, scene: Scene, tmp_path: Path) -> None:
        entries = [*scene.entries, made_up(scene.entries)]
        forged, genuine = tmp_path / "forged.json", tmp_path / "genuine.json"
        forged.write_text(forged_receipt(entries, scene.stolen))
        genuine.write_text(scene.receipt)
        key = tmp_path / "public.pem"
        key.write_text(scene.new_list)
        assert call("verify", forged, "--key", key).code == NOT_VALID
        assert call("verify", genuine, "--key", key).code == DONE
        assert call("verify", genuine, "--key", key, "--seen", forged).code != DONE

    def test_genuine_ones_of_both_keys_are_valid(self, scene: Scene) -> None:
        before = check_receipt(scene.before, scene.new_list)
        assert before.valid and AS_OF_THE_LIST not in before.not_covered
        assert RETIRED in before.not_covered
        sizes = f"that key signs heads over 0 to {scene.rotation} entries"
        assert f"{sizes}, by the list of keys given" in before.findings
        after = check_receipt(scene.receipt, scene.new_list)
        assert after.valid and AS_OF_THE_LIST in after.not_covered
        assert RETIRED not in after.not_covered

    def test_a_list_from_before_the_rotation_says_what_it_cannot_know(
        self, scene: Scene
    ) -> None:
        verdict = check_receipt(scene.receipt, scene.old_list)
        assert not verdict.valid
        assert "the newest list of all keys" in verdict.says
        entries = [*scene.entries, made_up(scene.entries)]
        forged = forged_receipt(entries, scene.stolen)
        old = check_receipt(forged, scene.old_list)
        assert old.valid  # as of that list the key was in force
        assert AS_OF_THE_LIST in old.not_covered and AS_OF_THE_LIST in old.says

    def test_made_up_before_the_rotation_is_refuted_by_an_export(
        self, scene: Scene, tmp_path: Path
    ) -> None:
        """In its own range the key is good; the verdict says what to do about it."""
        entries = list(scene.entries[: scene.rotation - 1])
        entries.append(made_up(entries))
        forged = tmp_path / "forged.json"
        forged.write_text(forged_receipt(entries, scene.stolen))
        verdict = check_receipt(forged.read_text(), scene.new_list)
        assert verdict.valid and RETIRED in verdict.says
        key, lines = tmp_path / "public.pem", tmp_path / "ledger.jsonl"
        key.write_text(scene.new_list)
        lines.write_bytes(scene.export)
        done = call("verify", forged, "--key", key, "--seen", lines)
        assert done.code == NOT_VALID
        assert "is another ledger" in done.words


class TestExports:
    def check(self, scene: Scene, entries: Sequence[Entry]) -> str:
        pages = [*entries, signed_head(entries, scene.stolen)]
        verdict = check_export(export(pages), scene.new_list)
        assert not verdict.valid
        return verdict.says

    def test_made_up_after_the_rotation(self, scene: Scene) -> None:
        says = self.check(scene, [*scene.entries, made_up(scene.entries)])
        assert "is in force there" in says

    def test_another_history_without_the_rotation(self, scene: Scene) -> None:
        """Each of its heads bears a good signature of a key that is listed."""
        entries = list(scene.entries[: scene.rotation])
        while len(entries) < len(scene.entries):
            entries.append(made_up(entries))
        says = self.check(scene, entries)
        assert f"entry {scene.rotation} is wrong: after it key" in says

    def test_a_rotation_to_the_thief(self, scene: Scene) -> None:
        thief = SigningKey(b"t" * 32)
        entries = list(scene.entries[: scene.rotation])
        rotation = KeyRotated(
            sequence=len(entries), day=entries[-1].day, public=thief.public.raw.hex()
        )
        entries.append(sign(rotation, scene.stolen))
        pages = [*entries, signed_head(entries, thief)]
        verdict = check_export(export(pages), scene.new_list)
        assert not verdict.valid
        assert thief.public.id in verdict.says

    def test_an_earlier_rotation_to_the_true_key(self, scene: Scene) -> None:
        entries = list(scene.entries[: scene.rotation - 1])
        genuine: Any = scene.entries[scene.rotation]
        rotation = KeyRotated(
            sequence=len(entries), day=entries[-1].day, public=genuine.public
        )
        entries.append(sign(rotation, scene.stolen))
        says = self.check(scene, entries)
        assert f"entry {scene.rotation - 1} is wrong" in says


def test_heads_must_be_of_the_key_in_force_to_show_growth(scene: Scene) -> None:
    entries = [*scene.entries, made_up(scene.entries)]
    old = signed_head(scene.entries[: scene.rotation], scene.stolen)
    proof = consistency_proof(
        build_nodes(map(hash_entry, entries)), old.size, new=len(entries)
    )
    forged = signed_head(entries, scene.stolen)
    verdict = check_consistency(forged, old, proof=proof, public_pem=scene.new_list)
    assert len(verdict.failures) == 1
    assert f"not so: the head over {len(entries)} entries is signed" in verdict.says
