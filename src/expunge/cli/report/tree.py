# SPDX-License-Identifier: Apache-2.0
"""Tree: the end of a ledger as a drawing can show it.

A ledger of hundreds of entries is a tree too wide for a page. Subtrees far from the
receipt's entry and from the end stay closed, one node for all their entries; the rest
is open down to single entries. Every digest is that of the real tree.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal, TypeAlias

from ...ledger.merkle import Frontier

Role: TypeAlias = Literal["entry", "path", "proof", "plain"]

# How many entries at the end are shown one by one.
SHOWN = 4


@dataclass(frozen=True, slots=True)
class Node:
    """The root over entries ``start`` to ``stop``, less one, and where to draw it.

    Parameters
    ----------
    start, stop
        Which entries lie below.
    depth, x
        Steps below the root of all, and the place from left to right.
    role
        The receipt's "entry"; "path", computed from it on the way up; "proof", given
        in the receipt; or "plain".
    digest
        In hexadecimal.
    children
        Two, or none if the subtree is drawn closed.
    """

    start: int
    stop: int
    depth: int
    x: float
    role: Role
    digest: str
    children: tuple["Node", ...] = ()

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def sketch(leaves: Sequence[bytes], index: int) -> Node:
    """Return the tree over hashes of entries, open around ``index`` and at the end."""
    return _Sketcher(leaves, index, count()).node(0, len(leaves), 0, "path")


@dataclass(frozen=True, slots=True)
class _Sketcher:
    """What all nodes of one drawing share."""

    leaves: Sequence[bytes]
    index: int
    columns: Iterator[int]

    def node(self, start: int, stop: int, depth: int, above: Role) -> Node:
        """Return the node over these entries; ``above`` is the role of its parent."""
        role = self._role(start, stop, above)
        children: tuple[Node, ...] = ()
        last = stop > len(self.leaves) - SHOWN
        if stop - start > 1 and (last or role == "path"):
            # The split of RFC 9162: the largest power of two below the size.
            middle = start + (1 << ((stop - start - 1).bit_length() - 1))
            parts = ((start, middle), (middle, stop))
            children = tuple(self.node(*part, depth + 1, role) for part in parts)
        if children:
            x = 0.5 * (children[0].x + children[1].x)
        else:
            x = float(next(self.columns))
        digest = _root(self.leaves[start:stop]).hex()
        return Node(start, stop, depth, x, role, digest, children)

    def _role(self, start: int, stop: int, above: Role) -> Role:
        if start <= self.index < stop:
            return "path" if stop - start > 1 else "entry"
        return "proof" if above == "path" else "plain"


def _root(leaves: Sequence[bytes]) -> bytes:
    """Return the hash over these leaves as a tree of their own."""
    frontier = Frontier()
    for leaf in leaves:
        frontier = frontier.append(leaf)
    return frontier.tree().root
