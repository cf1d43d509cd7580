# SPDX-License-Identifier: Apache-2.0
"""Names for the arrays that travel between modules; nothing else lives here."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Index: TypeAlias = NDArray[np.intp]
Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Design: TypeAlias = NDArray[np.float64] | csr_array[Any, tuple[int, int]]
