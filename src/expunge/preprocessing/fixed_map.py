# SPDX-License-Identifier: Apache-2.0
"""FixedMap: rows that an encoder from elsewhere makes of texts, images or anything.

The encoder is code: no file and no certificate holds it. They name it, and hold what it
makes of a few inputs that anybody may see, by which it is recognised when it is given
again. Its numbers are rounded otherwise beside other inputs, on another computer or on
a GPU. So the rows that are summed are the rows that are kept, and nothing is encoded
again for a request by id.

The encoder itself is not unlearned. What it learnt from people who left stays in it,
and certificates say so, unless its operator declares that it never saw them, or states
what its training with differential privacy promises (``promise.group``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import ceil
from typing import Any, Literal, Self

import numpy as np

from ..core.arrays import Design, Matrix
from ..core.values import NOT_STORED, dumps, stored
from ..display.progress import ProgressBar
from ..exceptions import InvalidInput, Unsupported
from ..promise.group import Spent
from ..promise.scope import ForeignEncoder, Scope
from .embedding_cache import EmbeddingCache
from .inputs import InputMap, is_missing

PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    "An invoice is due on 1 March; please reply by then.",
    "1, 2, 3",
)
# How far a row of the same encoder may be from what it was, relative to its length:
# on another computer, in half precision, or beside other inputs.
TOLERANCE = 1e-2
LONGEST_NAME = 100


@stored
@dataclass(frozen=True, eq=False)
class FixedMap(InputMap):
    """Rows made by an encoder that is fixed: any callable, or an object with encode.

    Parameters
    ----------
    encoder
        Takes a list of inputs, or a part of the array that they are, and returns an
        array with a row for each.
    name
        Of the encoder, for people; the name of its class or function by default.
    digest
        A digest of its weights, such as their SHA-256, if you have one.
    seen
        "nobody" declares that it never saw data of anybody in the model. With
        "unknown", certificates say that it is not unlearned.
    dp
        (epsilon, delta) for one row of its training, if that was differentially
        private and saw the rows of the model. Certificates then state the total.
    probes
        Inputs that anybody may see, by which the encoder is recognised; a few short
        texts by default.
    batch
        How many inputs it is given at once.
    cache
        Where embeddings are kept by person from one fit to the next.
    """

    encoder: Any = field(default=None, metadata=NOT_STORED)
    name: str = ""
    digest: str = ""
    seen: Literal["unknown", "nobody"] = "unknown"
    dp: tuple[float, float] | None = None
    probes: Any = PROBES
    batch: int = 64
    cache: EmbeddingCache | None = field(default=None, metadata=NOT_STORED)
    known: Matrix | None = None  # what it makes of the probes, found by ``noted``

    def __post_init__(self) -> None:
        """Name the encoder, and refuse what cannot be stated."""
        encoder = self.encoder
        if encoder is not None and not (
            callable(encoder) or hasattr(encoder, "encode")
        ):
            raise InvalidInput(
                f"FixedMap({type(encoder).__name__}); give a function of a list, or an "
                "object with encode"
            )
        if not self.name:
            named = getattr(encoder, "__name__", type(encoder).__name__)
            object.__setattr__(self, "name", named)
        for word in ("name", "digest"):
            text: Any = getattr(self, word)
            shown = isinstance(text, str) and text.isprintable()
            if not shown or len(text) > LONGEST_NAME:
                raise InvalidInput(
                    f"FixedMap({word}=...): certificates show it; give at most "
                    f"{LONGEST_NAME} printable characters"
                )
        if self.seen not in ("unknown", "nobody"):
            raise InvalidInput(f"seen={self.seen!r}; use 'unknown' or 'nobody'")
        if type(self.batch) is not int or self.batch < 1:
            raise InvalidInput(
                f"batch={self.batch!r}; it must be an integer, at least 1"
            )
        if self.cache is not None and not hasattr(self.cache, "complete"):
            raise InvalidInput(
                f"cache={self.cache!r}; give an EmbeddingCache: EmbeddingCache(folder)"
            )
        if self.dp is None:
            return
        if self.seen == "nobody":
            raise InvalidInput(
                "dp=... with seen='nobody': what never saw the rows costs them "
                "nothing; give only one of them"
            )
        try:
            spent = Spent(*map(float, self.dp))
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"dp={self.dp!r}; give (epsilon, delta) for one row of the encoder's "
                f"training ({error})"
            ) from None
        object.__setattr__(self, "dp", (spent.epsilon, spent.delta))

    def __deepcopy__(self, memo: Any) -> Self:
        """Return the map itself: an encoder may be gigabytes, and it stays."""
        del memo
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle may hold: a copy of the cache would not forget."""
        return vars(self) | {"cache": None}

    def __repr__(self) -> str:
        return f"FixedMap({self.name!r})"

    @property
    def stated(self) -> str:
        """What certificates say of it, as canonical JSON."""
        parts = {"name": self.name, "probes": self._known_digest, "seen": self.seen}
        parts |= {"digest": self.digest} if self.digest else {}
        return dumps(parts | ({} if self.dp is None else {"dp": list(self.dp)}))

    @property
    def _known_digest(self) -> str:
        """What stands for the known rows: rounded, so that people can compare it."""
        assert self.known is not None
        return sha256(self.known.astype(np.float32).tobytes()).hexdigest()

    def state_in(self, scope: Scope) -> Scope:
        """Return what certificates state, with what they say of the encoder."""
        foreign = ForeignEncoder(self.name, self.seen, *(self.dp or (None, None)))
        return replace(scope, encoder=self.stated, foreign=foreign)

    def make_rows(
        self, inputs: Sequence[Any], *, owners: Sequence[str] | None, shown: bool
    ) -> Design:
        """Return an embedding of each input, from the cache where it has one."""
        self._require_encoder()
        for place, one in enumerate(inputs):
            # Most encoders fail at it somewhere deep inside.
            if is_missing(one):
                raise InvalidInput(
                    f"input {place}, counted from 0, is missing; leave its row out, or "
                    "put '' in place of a text"
                )
        if self.known is not None and not self._is_the_same:
            self._refuse_other()
        if self.cache is None or owners is None:
            return self._embed(inputs, shown=shown)
        if self.known is None:
            return self.noted().make_rows(inputs, owners=owners, shown=shown)
        return self.cache.complete(
            inputs,
            owners,
            identity=self._known_digest,
            embed=lambda missing: self._embed(missing, shown=shown),
        )

    def noted(self) -> Self:
        """Return the map with what the encoder makes of the probes."""
        if self.known is not None:
            return self
        self._require_encoder()
        try:
            known = self._embed(self.probes, shown=False)
            alone = [self._embed(self.probes[i : i + 1], shown=False) for i in (0, 1)]
        except InvalidInput:
            raise
        except Exception as error:
            raise InvalidInput(
                f"the encoder {self.name!r} cannot read the inputs that it is "
                f"recognised by ({type(error).__name__}); give probes=[...], a few "
                "inputs of its kind that anybody may see"
            ) from error
        if any(one.shape[1] != known.shape[1] for one in alone) or not _are_near(
            np.vstack(alone), known[:2]
        ):
            raise InvalidInput(
                f"the encoder {self.name!r} makes something else of an input alone "
                "than of the same input among others: it learns from the inputs it is "
                "given, which would not be forgotten, or draws at random; let each row "
                "depend on its input alone"
            )
        return replace(self, known=known)

    def attach(self, encoder: Any) -> Self:
        """Return the map with its encoder, which must make the same of the probes."""
        cache = self.cache
        if isinstance(encoder, FixedMap):
            if encoder.digest and self.digest and encoder.digest != self.digest:
                self._refuse_other()
            encoder, cache = encoder.encoder, encoder.cache
        attached = replace(self, encoder=encoder, cache=cache)
        attached._require_encoder()
        if not attached._is_the_same:
            self._refuse_other()
        return attached

    @property
    def keeps_people(self) -> bool:
        """Whether it keeps embeddings by person."""
        return self.cache is not None

    def forget(self, people: Sequence[str]) -> None:
        """Destroy the embeddings of people in the cache."""
        if self.cache is not None:
            self.cache.forget(people)

    def to_sklearn(self) -> Any:
        """Return a transformer that calls the encoder."""
        from sklearn.preprocessing import FunctionTransformer

        return FunctionTransformer(self._embed)

    def _embed(self, inputs: Sequence[Any], *, shown: bool = False) -> Matrix:
        """Return an embedding of each input, some at a time."""
        encode = getattr(self.encoder, "encode", self.encoder)
        n, parts = len(inputs), []
        with ProgressBar("encoding", ceil(n / self.batch), shown=shown) as bar:
            for begin in range(0, n, self.batch):
                some = inputs[begin : begin + self.batch]
                parts.append(self._check(encode(some), len(some)))
                bar.count()
        widths = {part.shape[1] for part in parts}
        if self.known is not None:
            widths.add(self.known.shape[1])
        if len(widths) > 1:
            raise InvalidInput(
                f"the encoder {self.name!r} makes rows of {min(widths)} and of "
                f"{max(widths)} numbers; every row must have as many"
            )
        return np.vstack(parts)

    def _check(self, made: Any, n: int) -> Matrix:
        try:
            rows = np.asarray(made, dtype=np.float64)
        except (TypeError, ValueError):
            rows = np.empty(0)
        if rows.ndim != 2 or len(rows) != n or not rows.shape[1]:
            shape = getattr(made, "shape", None)
            raise InvalidInput(
                f"the encoder {self.name!r} makes {type(made).__name__} "
                f"{'' if shape is None else f'{tuple(shape)} '}of {n} inputs; it must "
                "return an array with a row for each input"
            )
        if not np.isfinite(rows).all():
            raise InvalidInput(
                f"the encoder {self.name!r} gives a number that is infinite or "
                "missing; leave such inputs out"
            )
        return rows

    def _require_encoder(self) -> None:
        if self.encoder is None:
            raise Unsupported(
                f"the encoder {self.name!r} is not here, because code is never stored: "
                "give it, as in expunge.load(path, encoder=...), to take inputs; "
                "people can be forgotten by their ids without it"
            )

    @cached_property
    def _is_the_same(self) -> bool:
        assert self.known is not None
        made = replace(self, known=None)._embed(self.probes)
        return made.shape == self.known.shape and _are_near(made, self.known)

    def _refuse_other(self) -> None:
        raise InvalidInput(
            f"this encoder is not {self.name!r} of the fit: it has another digest, or "
            "makes something else of the inputs that it is recognised by; give the "
            "one of the fit, or fit again; nothing was changed"
        )


def _are_near(rows: Matrix, others: Matrix) -> bool:
    lengths = np.linalg.norm(others, axis=1)
    return bool((np.linalg.norm(rows - others, axis=1) <= TOLERANCE * lengths).all())
