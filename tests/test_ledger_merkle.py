# SPDX-License-Identifier: Apache-2.0
"""Merkle trees against their definition, and against published roots."""

from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.ledger import merkle
from expunge.ledger.merkle import (
    EMPTY,
    Frontier,
    Proof,
    Tree,
    build_nodes,
    consistency_proof,
    extends,
    includes,
    inclusion_proof,
    leaf_hash,
)

SIZES = range(71)
LEAVES = [b"leaf %d" % i for i in SIZES]
HASHES = [leaf_hash(leaf) for leaf in LEAVES]
NODES = build_nodes(HASHES)

# The leaves and roots with which Certificate Transparency's reference code was tested.
PUBLISHED = [
    ("", "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
    ("00", "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
    ("10", "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"),
    ("2021", "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"),
    ("3031", "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4"),
    ("40414243", "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef"),
    (
        "5051525354555657",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    ),
    (
        "606162636465666768696a6b6c6d6e6f",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ),
]


def naive_root(leaves: Sequence[bytes]) -> bytes:
    """MTH of RFC 9162, section 2.1.1, word by word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = naive_split(len(leaves))
    left, right = naive_root(leaves[:k]), naive_root(leaves[k:])
    return sha256(b"\x01" + left + right).digest()


def naive_split(n: int) -> int:
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def naive_path(m: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PATH of section 2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = naive_split(len(leaves))
    if m < k:
        return [*naive_path(m, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_path(m - k, leaves[k:]), naive_root(leaves[:k])]


def naive_subproof(m: int, leaves: Sequence[bytes], known: bool) -> list[bytes]:
    """SUBPROOF of section 2.1.4.1."""
    if m == len(leaves):
        return [] if known else [naive_root(leaves)]
    k = naive_split(len(leaves))
    if m <= k:
        return [*naive_subproof(m, leaves[:k], known), naive_root(leaves[k:])]
    return [*naive_subproof(m - k, leaves[k:], False), naive_root(leaves[:k])]


def grown(hashes: Sequence[bytes]) -> Frontier:
    frontier = Frontier()
    for leaf in hashes:
        frontier = frontier.append(leaf)
    return frontier


TREES = [Tree(n, naive_root(LEAVES[:n])) for n in SIZES]


def forgeries(proof: Proof) -> list[Proof]:
    """Return proofs that differ in one hash, or in how many there are."""
    return [
        *(
            (*proof[:i], sha256(sibling).digest(), *proof[i + 1 :])
            for i, sibling in enumerate(proof)
        ),
        *([proof[:-1], proof[1:]] if proof else []),
        (*proof, EMPTY),
        (EMPTY, *proof),
    ]


def test_published_roots() -> None:
    frontier = Frontier()
    assert frontier.tree() == Tree(0, EMPTY)
    assert EMPTY.hex().startswith("e3b0c44298fc1c149afbf4c8996fb924")
    for leaf, root in PUBLISHED:
        frontier = frontier.append(leaf_hash(bytes.fromhex(leaf)))
        assert frontier.tree().root.hex() == root


@pytest.mark.parametrize("size", SIZES)
def test_frontier_gives_the_root_and_stays_small(size: int) -> None:
    frontier = grown(HASHES[:size])
    assert frontier.tree() == TREES[size]
    assert len(frontier.peaks) == size.bit_count()


@pytest.mark.parametrize("size", SIZES)
def test_inclusion_proofs_are_the_naive_ones_and_verify(size: int) -> None:
    for index in range(size):
        proof = inclusion_proof(NODES, index, size=size)
        assert proof == tuple(naive_path(index, LEAVES[:size]))
        assert includes(TREES[size], index, leaf=HASHES[index], proof=proof)


@pytest.mark.parametrize("size", SIZES[1:])
def test_proof_of_the_newest_leaf_is_the_frontier_before_it(size: int) -> None:
    before = grown(HASHES[: size - 1])
    proof = inclusion_proof(NODES, size - 1, size=size)
    assert proof == tuple(reversed(before.peaks))


@pytest.mark.parametrize("size", SIZES)
def test_consistency_proofs_are_the_naive_ones_and_verify(size: int) -> None:
    for old in range(size + 1):
        proof = consistency_proof(NODES, old, new=size)
        naive = naive_subproof(old, LEAVES[:size], True) if old else []
        assert proof == tuple(naive)
        assert extends(TREES[size], TREES[old], proof=proof)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13, 32, 33])
def test_forged_inclusion_is_refused(size: int) -> None:
    tree = TREES[size]
    for index in range(size):
        proof = inclusion_proof(NODES, index, size=size)
        leaf = HASHES[index]
        for forged in forgeries(proof):
            assert not includes(tree, index, leaf=leaf, proof=forged)
        assert not includes(tree, index, leaf=HASHES[index + 1], proof=proof)
        assert not includes(Tree(size, EMPTY), index, leaf=leaf, proof=proof)
        assert not includes(Tree(4 * size, tree.root), index, leaf=leaf, proof=proof)
        for other in {-1, size, *range(size)} - {index}:
            assert not includes(tree, other, leaf=leaf, proof=proof)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13, 32, 33])
def test_forged_consistency_is_refused(size: int) -> None:
    new = TREES[size]
    for old in range(size + 1):
        proof = consistency_proof(NODES, old, new=size)
        for forged in forgeries(proof):
            assert not extends(new, TREES[old], proof=forged)
        assert not extends(new, Tree(old, sha256(b"other").digest()), proof=proof)
        if old:
            assert not extends(Tree(size, EMPTY), TREES[old], proof=proof)
            assert not extends(Tree(4 * size, new.root), TREES[old], proof=proof)
        assert old == size or not extends(TREES[old], new, proof=proof)


def test_empty_tree_has_one_root() -> None:
    other = sha256(b"other").digest()
    for size in (0, 1, 5):
        assert extends(TREES[size], TREES[0], proof=())
        assert not extends(TREES[size], Tree(0, other), proof=())
    assert not extends(Tree(0, other), TREES[0], proof=())
    assert not extends(Tree(0, other), Tree(0, other), proof=())
    assert not extends(Tree(-1, other), Tree(-1, other), proof=())


def test_hashes_of_another_length_are_refused() -> None:
    # The bytes that a node is hashed over can be cut at another place.
    tree, (left, right) = TREES[2], HASHES[:2]
    whole = left + right
    assert includes(tree, 1, leaf=right, proof=(left,))
    for cut in {*range(len(whole) + 1)} - {len(left)}:
        assert not includes(tree, 1, leaf=whole[cut:], proof=(whole[:cut],))
        assert not includes(tree, 0, leaf=whole[:cut], proof=(whole[cut:],))
        # The tree of one leaf is said to be the larger one, less the cut.
        begun = Tree(1, whole[:cut])
        assert not extends(tree, begun, proof=(whole[cut:],))
    assert extends(tree, Tree(1, left), proof=(right,))
    # Of three leaves the first hash of the proof is of the third.
    joined, last = TREES[2].root + HASHES[2], consistency_proof(NODES, 3, new=4)
    assert extends(TREES[4], TREES[3], proof=last)
    for cut in {*range(len(joined) + 1)} - {len(left)}:
        forged = (joined[cut:], last[1], joined[:cut])
        assert not extends(TREES[4], TREES[3], proof=forged)
    assert not includes(Tree(1, b"short"), 0, leaf=b"short", proof=())
    assert not extends(Tree(1, b"short"), Tree(1, b"short"), proof=())


def test_leaf_is_no_node() -> None:
    # What the first byte is for: a node's preimage does not pass for a leaf.
    inner = b"\x01" + HASHES[0] + HASHES[1]
    assert leaf_hash(HASHES[0] + HASHES[1]) != sha256(inner).digest()
    assert leaf_hash(inner) != TREES[2].root


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=3), min_size=1, max_size=300), st.data())
def test_any_list(leaves: list[bytes], data: st.DataObject) -> None:
    hashes = [leaf_hash(leaf) for leaf in leaves]
    nodes, size = build_nodes(hashes), len(leaves)
    tree = grown(hashes).tree()
    assert tree == Tree(size, naive_root(leaves))
    index = data.draw(st.integers(0, size - 1))
    old = data.draw(st.integers(1, size))
    path = inclusion_proof(nodes, index, size=size)
    assert path == tuple(naive_path(index, leaves))
    assert includes(tree, index, leaf=hashes[index], proof=path)
    growth = consistency_proof(nodes, old, new=size)
    assert growth == tuple(naive_subproof(old, leaves, True))
    assert extends(tree, Tree(old, naive_root(leaves[:old])), proof=growth)


@settings(max_examples=40)
@given(st.integers(1, 2**40), st.data())
def test_length_of_proofs_is_logarithmic(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    asked: list[tuple[int, int]] = []

    def nodes(level: int, i: int) -> bytes:
        asked.append((level, i))
        assert (i + 1) << level <= size  # of complete subtrees alone
        return EMPTY

    assert len(inclusion_proof(nodes, index, size=size)) <= size.bit_length()
    assert len(consistency_proof(nodes, index, new=size)) <= size.bit_length() + 1
    assert len(asked) <= 4 * size.bit_length()


@pytest.mark.parametrize("size", [0, 1, 99_999, 10**5, 2**40 - 1, 2**40])
def test_appending_costs_no_more_than_the_bits_of_the_size(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bytes] = []

    def counted(left: bytes, right: bytes) -> bytes:
        calls.append(left)
        return EMPTY

    monkeypatch.setattr(merkle, "node_hash", counted)
    frontier = Frontier(size, (EMPTY,) * size.bit_count()).append(EMPTY)
    frontier.tree()
    assert frontier.size == size + 1
    assert len(calls) <= (size + 1).bit_length()


def test_nonsense_is_refused() -> None:
    with pytest.raises(InvalidInput, match="3 does not have 1 peaks"):
        Frontier(3, (EMPTY,))
    with pytest.raises(InvalidInput, match="leaf 4 is not in a tree of 4"):
        inclusion_proof(NODES, 4, size=4)
    with pytest.raises(InvalidInput, match="no tree of 3"):
        consistency_proof(NODES, 4, new=3)
