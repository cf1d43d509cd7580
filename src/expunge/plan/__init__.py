# SPDX-License-Identifier: Apache-2.0
"""Plan: which budget to take, and what it does, before you commit to it."""

from .advice import Advice, advise
from .trials import SigmaTrial

__all__ = ["Advice", "SigmaTrial", "advise"]
