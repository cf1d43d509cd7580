# SPDX-License-Identifier: Apache-2.0
"""Run everything on wide models, from dense data to how costs grow."""

from collections.abc import Iterator
from pathlib import Path

from ..report import Section
from . import dense, embeddings, flights, growth, hashed, text
from .settings import FULL, Sizes


def run(data_dir: Path | None = None, sizes: Sizes = FULL) -> Iterator[Section]:
    """Yield what wide models cost to fit and to forget from."""
    yield from dense.run_softmax(sizes)
    yield from dense.run_one_vs_rest(sizes)
    yield from embeddings.run_embeddings(sizes)
    yield from dense.run_sentences(data_dir, sizes)
    yield from text.run_text(sizes)
    yield from hashed.run_hashed(sizes)
    yield from flights.run_flights(data_dir, sizes)
    yield from growth.run_growth(sizes)
