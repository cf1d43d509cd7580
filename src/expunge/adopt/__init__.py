# SPDX-License-Identifier: Apache-2.0
"""Adopt: fitted scikit-learn estimators become models that can forget.

``from_sklearn`` reads what a fitted estimator minimised and solves it again from the
coefficients given. ``model.to_sklearn()`` goes the other way, for serving.
"""

from ..private_model.answers import Adoption
from .estimators import Adopting, AdoptionWarning, from_sklearn

__all__ = ["Adopting", "Adoption", "AdoptionWarning", "from_sklearn"]
