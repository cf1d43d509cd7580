# SPDX-License-Identifier: Apache-2.0
"""Features of street digits, and what each of them promises those it learnt from.

Four maps turn an image into a row: gradient histograms and scattering, which never
saw the data; a network trained with differential privacy; and that network untrained.
"""

from expunge.promise.group import Spent

from .accuracy import run
from .cache import load_features
from .extractor import Extractor
from .group import Coverage, coverage
from .histogram import Histogram
from .kinds import FeatureMap, Features
from .scattering import Scattering
from .svhn import Digits, svhn_3_vs_8

__all__ = [
    "Coverage",
    "Digits",
    "Extractor",
    "FeatureMap",
    "Features",
    "Histogram",
    "Scattering",
    "Spent",
    "coverage",
    "load_features",
    "run",
    "svhn_3_vs_8",
]
