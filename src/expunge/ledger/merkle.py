# SPDX-License-Identifier: Apache-2.0
"""Merkle trees in the manner of RFC 9162: one hash that vouches for a whole list.

    MTH()  = SHA-256()                                  no leaves
    MTH(d) = SHA-256(0x00 || d)                         one leaf
    MTH(D) = SHA-256(0x01 || MTH(D[:k]) || MTH(D[k:]))  n leaves

with k the largest power of two below n (section 2.1.1). A ``Frontier`` is all that
appending needs, at most one hash for each bit of the size. An inclusion proof shows
that a leaf is in a tree, a consistency proof that one tree begins with another; both
hold O(log n) hashes. Roots of complete subtrees never change, so if you keep them,
about two for each leaf, you can prove anything in O(log n) steps too.

Everything here is a pure function of hashes; nothing knows what a leaf says.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from ..exceptions import InvalidInput

HASH_BYTES = 32
EMPTY = sha256().digest()

Proof: TypeAlias = tuple[bytes, ...]
Nodes: TypeAlias = Callable[[int, int], bytes]
"""(level, i) to the root over the leaves i 2^level to (i + 1) 2^level, less one."""


def leaf_hash(leaf: bytes) -> bytes:
    """Return the hash of a leaf; its first byte sets leaves apart from nodes."""
    return sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node with these two below it."""
    return sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Tree:
    """How many leaves, and the hash over all of them."""

    size: int
    root: bytes


@dataclass(frozen=True, slots=True)
class Frontier:
    """What appending needs of a tree: the roots of its largest complete subtrees.

    Parameters
    ----------
    size
        Number of leaves.
    peaks
        One root for each bit of ``size`` that is set, largest subtree first.
    """

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        """Refuse peaks that no tree of this size has."""
        if self.size < 0 or len(self.peaks) != self.size.bit_count():
            raise InvalidInput(
                f"a tree of size {self.size} does not have {len(self.peaks)} peaks; it "
                "has one for each bit of its size that is set"
            )

    def completed_roots(self, leaf: bytes) -> tuple[bytes, ...]:
        """Return the roots that a next leaf completes, from its own hash upwards.

        The one at position i is node (i, size >> i) of the larger tree.
        """
        roots = [leaf]
        # As many trailing ones as the size has, so many peaks are merged.
        for level in range((~self.size & (self.size + 1)).bit_length() - 1):
            roots.append(node_hash(self.peaks[-1 - level], roots[-1]))
        return tuple(roots)

    def append(self, leaf: bytes) -> "Frontier":
        """Return the frontier with one leaf more, given as its hash."""
        return self.extend((leaf,))

    def extend(self, leaves: Sequence[bytes]) -> "Frontier":
        """Return the frontier with these leaves more, given as their hashes."""
        peaks = list(self.peaks)
        for size, leaf in enumerate(leaves, start=self.size):
            root = leaf
            # As many trailing ones as the size has, so many peaks are merged.
            while size & 1:
                root = node_hash(peaks.pop(), root)
                size >>= 1
            peaks.append(root)
        return Frontier(self.size + len(leaves), tuple(peaks))

    def tree(self) -> Tree:
        """Return size and root (the stack of RFC 9162, section 2.1.2)."""
        if not self.peaks:
            return Tree(0, EMPTY)
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node_hash(peak, root)
        return Tree(self.size, root)


def build_nodes(leaves: Iterable[bytes]) -> Nodes:
    """Return the complete subtrees over these hashes of leaves, kept in memory."""
    table: dict[tuple[int, int], bytes] = {}
    frontier = Frontier()
    for leaf in leaves:
        for level, root in enumerate(frontier.completed_roots(leaf)):
            table[level, frontier.size >> level] = root
        frontier = frontier.append(leaf)
    return lambda level, i: table[level, i]


def inclusion_proof(nodes: Nodes, index: int, *, size: int) -> Proof:
    """Return the proof that leaf ``index`` is in the tree of the first ``size``.

    PATH(m, D_n) of RFC 9162, section 2.1.3.1: the sibling at each turn, lowest first.
    """
    if not 0 <= index < size:
        raise InvalidInput(f"leaf {index} is not in a tree of {size}; count from 0")
    proof = []
    start, stop = 0, size
    while stop - start > 1:
        middle = start + _split(stop - start)
        if index < middle:
            proof.append(_root(nodes, middle, stop=stop))
            stop = middle
        else:
            proof.append(_root(nodes, start, stop=middle))
            start = middle
    return tuple(reversed(proof))


def consistency_proof(nodes: Nodes, old: int, *, new: int) -> Proof:
    """Return the proof that the tree of ``new`` leaves begins with the one of ``old``.

    SUBPROOF(m, D_n, true) of RFC 9162, section 2.1.4.1; empty for an old size of 0.
    """
    if not 0 <= old <= new:
        raise InvalidInput(f"no tree of {new} leaves begins with one of {old}")
    if old in (0, new):
        return ()
    proof = []
    start, stop = 0, new
    while stop != old:
        middle = start + _split(stop - start)
        if old <= middle:
            proof.append(_root(nodes, middle, stop=stop))
            stop = middle
        else:
            proof.append(_root(nodes, start, stop=middle))
            start = middle
    if start:  # a subtree that is not the whole old tree, whose root is known
        proof.append(_root(nodes, start, stop=stop))
    return tuple(reversed(proof))


def includes(tree: Tree, index: int, *, leaf: bytes, proof: Proof) -> bool:
    """Return whether the proof shows this leaf at this place (section 2.1.3.2)."""
    if not 0 <= index < tree.size or not _are_hashes(tree.root, leaf, *proof):
        return False
    place, last = index, tree.size - 1
    root = leaf
    for sibling in proof:
        if last == 0:
            return False
        if place & 1 or place == last:
            root = node_hash(sibling, root)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            root = node_hash(root, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and root == tree.root


def extends(new: Tree, old: Tree, *, proof: Proof) -> bool:
    """Return whether the proof shows that the new tree begins with the old one.

    RFC 9162, section 2.1.4.2, with the two trees it leaves aside: every tree begins
    with itself and with the empty one, and the proof of that is empty.
    """
    if not 0 <= old.size <= new.size or not _are_hashes(new.root, old.root, *proof):
        return False
    if any(tree.size == 0 and tree.root != EMPTY for tree in (old, new)):
        return False
    if old.size in (0, new.size):
        return not proof and (old.size == 0 or old.root == new.root)
    if not proof:
        return False
    complete = old.size & (old.size - 1) == 0
    first, *rest = (old.root, *proof) if complete else proof
    place, last = old.size - 1, new.size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old_root = new_root = first
    for sibling in rest:
        if last == 0:
            return False
        if place & 1 or place == last:
            old_root = node_hash(sibling, old_root)
            new_root = node_hash(sibling, new_root)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            new_root = node_hash(new_root, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and old_root == old.root and new_root == new.root


def _are_hashes(*hashes: bytes) -> bool:
    """Return whether each is as long as a hash.

    A node is hashed over its two parts without a mark between them: of other lengths,
    two different pairs would have the same hash.
    """
    return all(len(one) == HASH_BYTES for one in hashes)


def _split(size: int) -> int:
    """Return the largest power of two below the size."""
    return 1 << ((size - 1).bit_length() - 1)


def _root(nodes: Nodes, start: int, *, stop: int) -> bytes:
    """Return the root over leaves ``start`` to ``stop``, less one."""
    size = stop - start
    if size & (size - 1) == 0:
        level = size.bit_length() - 1
        return nodes(level, start >> level)
    middle = start + _split(size)
    return node_hash(_root(nodes, start, stop=middle), _root(nodes, middle, stop=stop))
