# SPDX-License-Identifier: Apache-2.0
"""The promise on the diagram that scikit-learn draws of an estimator."""

from dataclasses import replace
from typing import Any

from ..display.cards import Cells
from .certificate import Certificate


def _is_fitted(name: str) -> bool:
    """Whether a name is one of scikit-learn's for what a fit makes."""
    return name.endswith("_") and not name.startswith("_")


# The fitted attributes that a diagram shows: those of the release and of the contract.
# Any other, such as the steps of a solver, may tell who left.
SHOWN = frozenset(
    (
        "alpha_",
        "certificate_",
        "classes_",
        "coef_",
        "feature_names_in_",
        "intercept_",
        "l1_ratio_",
        "n_features_in_",
    )
)


class ShowsPromise:
    """Adds the promise to the diagram that scikit-learn draws of an estimator.

    scikit-learn decides whether there is a diagram: ``set_config(display="text")``
    turns both off.
    """

    def __dir__(self) -> list[str]:
        """Return the names that tools list: no fitted attribute that is private."""
        names = super().__dir__()
        return [n for n in names if not _is_fitted(n) or n in SHOWN]

    def _repr_html_inner(self) -> str:
        shown: Any = super()
        return f"{shown._repr_html_inner()}{self._draw_promise()}"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        shown: Any = super()
        bundle: dict[str, str] = shown._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += self._draw_promise()
        return bundle

    def _draw_promise(self) -> str:
        """Return the card of the last release; nothing before the first."""
        certificate: Certificate | None = getattr(self, "certificate_", None)
        if certificate is None:
            return ""
        card = certificate.make_card(type(self).__name__)
        return replace(card, facts=(*card.facts, *self._public_facts())).to_html()

    def _public_facts(self) -> Cells:
        """Return what else may stand on the card: nothing that rows have a say in."""
        return ()
