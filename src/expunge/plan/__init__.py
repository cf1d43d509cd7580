# SPDX-License-Identifier: Apache-2.0
"""Plan: which budget to take, and what it allows, before you commit to it."""

from .advise import Advice, suggest_budget
from .trials import SigmaTrial

__all__ = ["Advice", "SigmaTrial", "suggest_budget"]
