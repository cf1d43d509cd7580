# SPDX-License-Identifier: Apache-2.0
"""Tokens open what they should and no longer; the trail cannot be bent unnoticed."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from expunge.exceptions import InvalidInput
from expunge.ledger import Head, TrailSealed, check_consistency, check_export
from expunge.ledger.ledger import hash_entry
from expunge.ledger.merkle import includes
from expunge.registry import Registry
from tests.registries import (
    DAY,
    MINUTE,
    back_up,
    bend_trail,
    crash_with_a_line_in_the_journal_alone,
    folder_of,
    now,
    set_clock,
)

SCOPES = ("request", "operate", "audit", "admin")


def test_a_token_is_found_by_its_secret_alone(registry: Registry) -> None:
    token, secret = registry.access.create("desk", ["request"])
    assert registry.access.find(secret) == token
    assert registry.access.tokens() == (token,)
    for wrong in (token.id, secret[:-1], secret + "A", secret.lower(), "", "é"):
        assert registry.access.find(wrong) is None


def test_no_secret_is_kept(registry: Registry) -> None:
    _, secret = registry.access.create("desk", ["request"])
    for path in folder_of(registry).rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes()


def test_revoked_tokens_and_expired_ones_are_not_found(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, secret = registry.access.create("desk", ["request"], days=2)
    _, other = registry.access.create("other", ["audit"], days=3)
    set_clock(monkeypatch, now() + 2 * DAY)
    assert registry.access.find(secret) is None
    assert registry.access.find(other) is not None
    registry.access.revoke(registry.access.tokens()[0].id)
    assert registry.access.find(other) is None
    with pytest.raises(InvalidInput, match="no token with this id"):
        registry.access.revoke("0" * 16)


def test_only_sessions_are_prolonged(registry: Registry) -> None:
    token, secret = registry.access.create("ada", ["audit"], days=1)
    registry.access.prolong(token.id, minutes=10**5)
    assert registry.access.find(secret) == token


def test_sessions_end_with_their_token(registry: Registry) -> None:
    token, _ = registry.access.create("desk", ["audit"])
    again, other = registry.access.create("desk", ["request"])
    session, mine = registry.access.create_session("desk", ["audit"], minutes=9)
    _, theirs = registry.access.create_session("ada", ["audit"], minutes=9)
    registry.access.revoke(token.id)
    assert registry.access.find(mine) is None
    assert registry.access.find(theirs) is not None
    assert registry.access.find(other) == again
    session, mine = registry.access.create_session("desk", ["audit"], minutes=9)
    registry.access.revoke(session.id)  # as by signing out, which ends nothing else
    assert registry.access.find(mine) is None
    assert registry.access.find(other) == again


def test_no_backup_brings_a_revoked_token_back(
    registry: Registry, tmp_path: Path
) -> None:
    token, secret = registry.access.create("desk", ["admin"])
    _, mine = registry.access.create_session("desk", ["admin"], minutes=9)
    _, kept = registry.access.create("other", ["audit"])
    backup = back_up(registry, tmp_path / "backup")
    registry.access.revoke(token.id)
    _, later = registry.access.create("later", ["request"])
    registry.close()
    with backup.restore() as restored:
        found = [restored.access.find(one) for one in (secret, mine, kept, later)]
        assert [one and one.name for one in found] == [None, None, "other", None]


def test_a_revocation_that_only_the_journal_has_counts(
    registry: Registry,
) -> None:
    """The process is killed after the line, before the commit."""
    token, secret = registry.access.create("desk", ["admin"])

    with crash_with_a_line_in_the_journal_alone():
        registry.access.revoke(token.id)
    assert registry.access.find(secret) is not None
    registry.requests.apply()
    assert registry.access.find(secret) is None


def test_sessions_end_in_minutes_unless_they_are_prolonged(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, secret = registry.access.create_session("ada", ["audit"], minutes=10)
    assert registry.access.tokens() == ()
    start = now()
    set_clock(monkeypatch, start + 9 * MINUTE)
    registry.access.prolong(session.id, minutes=10)
    set_clock(monkeypatch, start + 18 * MINUTE)
    assert registry.access.find(secret) is not None
    set_clock(monkeypatch, start + 20 * MINUTE)
    assert registry.access.find(secret) is None


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("request", {"request"}),
        ("operate", {"operate", "request"}),
        ("audit", {"audit"}),
        ("admin", {"request", "operate", "audit", "admin"}),
    ],
)
def test_scopes(registry: Registry, scope: str, allowed: set[str]) -> None:
    token, _ = registry.access.create("desk", [scope])
    assert {one for one in SCOPES if token.may(one)} == allowed


@pytest.mark.parametrize("name", ["", " desk", "a\nb", "x" * 81])
def test_bad_names_are_refused(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidInput, match="printable"):
        registry.access.create(name, ["request"])


@pytest.mark.parametrize("scopes", [[], ["root"], "admin"])
def test_bad_scopes_are_refused(registry: Registry, scopes: list[str]) -> None:
    with pytest.raises(InvalidInput, match="give some of"):
        registry.access.create("desk", scopes)


def test_the_trail_keeps_order_beside_others(registry: Registry) -> None:
    def write(number: int) -> None:
        registry.access.record([(f"actor {number}", "look", "")] * 3)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(8)))
    lines = registry.access.trail(0, 100)
    assert [line.sequence for line in lines] == list(range(24))
    assert registry.access.check_trail().valid
    assert registry.access.trail(22, 100) == lines[22:]


def test_the_ledger_seals_the_trail_once_a_day(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not registry.access.seal_trail()
    registry.access.record([("ada", "look", "x")])
    assert registry.access.seal_trail()
    registry.access.record([("ada", "look", "y")])
    assert not registry.access.seal_trail()
    set_clock(monkeypatch, now() + DAY)
    assert registry.access.seal_trail()
    assert not registry.access.seal_trail()
    sealed = [e for e in registry.ledger.entries() if isinstance(e, TrailSealed)]
    assert [one.n_lines for one in sealed] == [1, 2]
    assert registry.access.check_trail().valid
    assert check_export(registry.ledger.export(), registry.keys.public_pem()).valid


@pytest.mark.parametrize("damage", ["change", "drop", "cut", "rewrite"])
def test_a_bent_trail_is_not_valid(registry: Registry, damage: Any) -> None:
    registry.access.record([("ada", "look", str(place)) for place in range(6)])
    registry.access.seal_trail()
    if damage == "rewrite":
        bend_trail(registry, "empty")
        registry.access.record([("bob", "look", str(place)) for place in range(6)])
    else:
        bend_trail(registry, damage, 4 if damage == "cut" else 2)
    assert not registry.access.check_trail().valid


@pytest.mark.parametrize("n_later", [0, 2, 9])
def test_a_restored_trail_stands_and_says_what_is_lost(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_later: int
) -> None:
    """Lines since the backup are gone, and the ledger has a seal over them."""
    start = now()
    registry.access.record([("ada", "look", str(place)) for place in range(3)])
    registry.access.seal_trail()
    backup = back_up(registry, tmp_path / "backup")
    registry.access.record([("ada", "look", "later")] * 4)
    set_clock(monkeypatch, start + DAY)
    assert registry.access.seal_trail()
    registry.close()
    with backup.restore() as restored:
        restored.access.record([("bob", "look", "again")] * n_later)
        verdict = restored.access.check_trail()
        assert verdict.valid, verdict.says
        assert f"has {3 + n_later} lines" in verdict.says
        assert "1 of 2 seals" in verdict.says
        set_clock(monkeypatch, start + 2 * DAY)
        assert restored.access.seal_trail()
        assert restored.access.check_trail().valid
        bend_trail(restored, "cut", 2)
        assert not restored.access.check_trail().valid


def test_proofs_of_the_ledger_hold(registry: Registry) -> None:
    for person in ("person 1", "person 2", "person 3"):
        registry.forget([person])
    entries = list(registry.ledger.entries())
    heads = registry.ledger.heads()
    text = registry.ledger.head()
    assert text is not None
    newest = Head.from_json(text)
    assert newest == heads[-1]
    assert registry.ledger.heads(heads[0].size) == heads[1:]
    assert registry.ledger.page(2, 3) == entries[2:5]
    for head in heads:
        for entry in entries[: head.size]:
            proof = registry.ledger.prove_inclusion(entry.sequence, head.size)
            path = tuple(map(bytes.fromhex, proof))
            leaf = hash_entry(entry)
            assert includes(head.tree, entry.sequence, leaf=leaf, proof=path)
        grown = registry.ledger.prove_growth(head.size, newest.size)
        verdict = check_consistency(
            newest,
            head,
            proof=tuple(map(bytes.fromhex, grown)),
            public_pem=registry.keys.public_pem(),
        )
        assert verdict.valid
    with pytest.raises(InvalidInput, match="entries, not"):
        registry.ledger.prove_growth(1, newest.size + 1)
    with pytest.raises(InvalidInput, match="is not in a tree"):
        registry.ledger.prove_inclusion(newest.size, newest.size)


def test_a_registry_reads_its_tokens_again(registry: Registry, tmp_path: Path) -> None:
    _, secret = registry.access.create("desk", ["request"])
    with Registry.open(folder_of(registry)) as again:
        assert again.access.find(secret) is not None
