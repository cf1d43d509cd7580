# SPDX-License-Identifier: Apache-2.0
"""Adopt: models come from scikit-learn with their data, and go back as releases.

``from_sklearn`` reads what a fitted estimator minimised (``objectives``), solves it
again from the coefficients given, and takes the result into custody; from then on the
model can forget. ``to_sklearn`` makes a plain estimator of a release, for serving.
"""

from .estimators import Adopting, Adoption, AdoptionWarning, from_sklearn, to_sklearn

__all__ = ["Adopting", "Adoption", "AdoptionWarning", "from_sklearn", "to_sklearn"]
