# SPDX-License-Identifier: Apache-2.0
"""Parcels: values as bytes, on their way between a client and its workers.

Dask would send arrays beside a pickle and leave them wherever they arrive in a message.
NumPy multiplies what is not aligned by other loops than BLAS, with other bits. From the
bytes of one pickle, arrays are read into memory of their own.

Private values refuse to be pickled, so that nobody writes them into a file by mistake.
Here they are meant to travel: workers are trusted as this process is.
"""

import pickle
from io import BytesIO
from typing import Any

from ..core.values import Private
from ..exceptions import needing


def pack_parcel(value: Any) -> bytes:
    """Return a value, or a function with all that it refers to, as bytes."""
    with needing("dask", "a Dask cluster"):
        import cloudpickle  # type: ignore[import-untyped]

    class Packer(cloudpickle.Pickler):  # type: ignore[misc]
        """Packs private values too."""

        def reducer_override(self, obj: Any) -> Any:
            """Return how to pack an object."""
            if isinstance(obj, Private):
                return object.__reduce_ex__(obj, pickle.HIGHEST_PROTOCOL)
            return super().reducer_override(obj)

    packed = BytesIO()
    Packer(packed, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return packed.getvalue()


def open_parcel(packed: bytes) -> Any:
    """Return the value in the bytes, with arrays in memory of their own."""
    return pickle.loads(packed)
