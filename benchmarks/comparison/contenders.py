# SPDX-License-Identifier: Apache-2.0
"""All contenders of the comparison, in the order of tables and plots."""

from .contenders_exact import COLD, WARM, FreshHessian
from .contenders_ours import (
    CERTIFIED_JACKKNIFE,
    JACKKNIFE,
    NEWTON,
    RESCALED,
    Apriori,
    Polished,
)
from .descent import Descent
from .guo import Guo
from .printed import Printed
from .protocol import Contender

CONTENDERS: tuple[Contender, ...] = (
    COLD,
    WARM,
    FreshHessian(),
    JACKKNIFE,
    CERTIFIED_JACKKNIFE,
    Apriori(),
    NEWTON,
    RESCALED,
    Polished(),
    Guo(),
    Descent(),
    Printed(),
)
