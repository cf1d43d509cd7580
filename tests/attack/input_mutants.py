# SPDX-License-Identifier: Apache-2.0
"""Mistakes with rows that are made of inputs, each put in by a function."""

from dataclasses import replace
from importlib import import_module
from typing import Any

from .replacing import put

FIXED = "preprocessing.fixed_map:FixedMap"


def hash_by_the_largest() -> None:
    """Divide hashed rows by the largest number among all of them."""
    real = import_module("expunge.preprocessing.hashed").HashedTexts._hash

    def shrunk(self: Any, inputs: Any) -> Any:
        rows = real(self, inputs)
        return rows / max(1.0, abs(rows).max()) if self.norm is None else rows

    put("preprocessing.hashed:HashedTexts", "_hash", shrunk)


def drop_the_signs() -> None:
    """Read texts to be hashed without their signs."""
    real = import_module("expunge.preprocessing.hashed").HashedTexts.to_sklearn

    def unsigned(self: Any) -> Any:
        return real(self).set_params(alternate_sign=False)

    put("preprocessing.hashed:HashedTexts", "to_sklearn", unsigned)


def take_any_encoder() -> None:
    """Take whatever encoder a model is loaded with."""
    put(FIXED, "_is_the_same", property(lambda self: True))


def encode_twice() -> None:
    """Keep what an encoder makes of inputs by themselves, and not what was summed."""
    module = import_module("expunge.private_model.training_rows")
    real = module.TrainingRows.take

    def take(self: Any, index: Any) -> Any:
        rows = real(self, index)
        return type(rows)(rows.X * (1.0 + 1e-9), rows.y, rows.weight)

    put("private_model.training_rows:TrainingRows", "take", take)


def say_nothing_of_the_encoder() -> None:
    """Leave the encoder out of what is not covered."""
    put("promise.scope:ForeignEncoder", "excluded", lambda self, head: ())


def charge_the_head_alone() -> None:
    """State the head's epsilon for encoder and head together."""
    module = import_module("expunge.promise.scope")
    real = module.ForeignEncoder.excluded

    def excluded(self: Any, head: Any) -> Any:
        if head is None or self.epsilon is None:
            return real(self, head)
        stated = real(self, head)[0]
        begin, _, rest = stated.partition("at most epsilon ")
        return (f"{begin}at most epsilon {head.epsilon} {rest.partition(' ')[2]}",)

    put("promise.scope:ForeignEncoder", "excluded", excluded)


def keep_the_cache() -> None:
    """Leave the embeddings of people who left in the cache."""
    put(
        "preprocessing.embedding_cache:EmbeddingCache",
        "forget",
        lambda self, people: None,
    )


def keep_the_weights_of_words() -> None:
    """Weigh hashed words by rows that have left too."""
    terms = import_module("expunge.preprocessing.weighed_terms")
    real = terms.TermRows.after

    def after(self: Any, *given: Any, **options: Any) -> Any:
        found = real(self, *given, **options)
        stale = replace(found.encoding, n_rows=self.n_rows, n_with=self.n_with)
        return found._replace(encoding=stale)

    put("preprocessing.weighed_terms:TermRows", "after", after)
