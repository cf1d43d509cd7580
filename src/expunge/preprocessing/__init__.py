# SPDX-License-Identifier: Apache-2.0
"""Preprocessing that forgets: statistics that rows can be taken out of, exactly."""

from .description import Preprocessing
from .features import FittedPreprocessing

__all__ = ["FittedPreprocessing", "Preprocessing"]
