# SPDX-License-Identifier: Apache-2.0
"""The promise in one sentence, on the cards of certificates and of estimators."""

from collections.abc import Mapping
from typing import Any

from ..display.cards import Card

NO_BUDGET = "Nothing is promised: there is no budget, so the release has no noise."
CHOSEN_ON_DATA = (
    "Nothing is promised: a choice was made by looking at the data, and removal does "
    "not undo it."
)
SEEDED_NOISE = (
    "Nothing is promised: the noise came from a seed, which the budget does not allow."
)


class PromiseCard:
    """A certificate as people read it: a sentence, and a card that holds it."""

    __slots__ = ()

    status: str
    epsilon: float | None
    delta: float | None
    sigma: float | None
    releases: int | None
    n_releases: int
    n_subjects_removed: int
    n_subjects_added: int
    n_parameters: int
    noise_source: Any
    selection: Any
    mechanism: str
    objective: Mapping[str, Any]
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]

    def state_promise(self) -> str:
        """Return in one sentence what is promised."""
        if self.status == "certified":
            whom = self._state_changes()
            what = f"this release can tell it from one retrained {whom}"
            if self.releases is not None:
                all_of_them = f"all {self.releases} releases"
                what = f"{all_of_them} can tell them from releases retrained {whom}"
            limits = f"epsilon {self.epsilon:g} and delta {self.delta:g}"
            return f"Up to {limits}, nobody who sees {what}."
        if self.epsilon is None:
            return NO_BUDGET
        return CHOSEN_ON_DATA if self.selection == "not covered" else SEEDED_NOISE

    def _state_changes(self) -> str:
        """Return how retraining would differ from the fit."""
        left, came = self.n_subjects_removed, self.n_subjects_added
        changes = []
        if left:
            changes.append(f"without the {_count_people(left)} who left")
        if came:
            changes.append(f"with the {_count_people(came)} who came")
        return " and ".join(changes) or "from scratch"

    def make_card(self, title: str = "Certificate") -> Card:
        """Return the card, under a title of your own."""
        promises = self.status == "certified"
        return Card(
            title,
            self.state_promise(),
            tone="promise" if promises else "warning",
            facts=tuple(self._facts().items()),
            folded=(
                ("What is not covered: it says nothing about ...", self.not_covered),
                ("When it holds: provided that ...", self.assumptions),
            ),
        )

    def _facts(self) -> dict[str, str]:
        """Return a few of the public figures by name."""
        of = "" if self.releases is None else f" of {self.releases}"
        loss, penalty = self.objective["loss"], self.objective["penalty"]
        facts = {
            "people removed": str(self.n_subjects_removed),
            **({"people added": str(came)} if (came := self.n_subjects_added) else {}),
            "release": f"{self.n_releases}{of}",
            "model": f"{loss['name']} loss, {penalty['name']} penalty, "
            f"{self.n_parameters} parameters; removal by {self.mechanism}",
        }
        if self.sigma is not None:
            source = f"from a {self.noise_source} source"
            facts["noise"] = f"sigma {self.sigma:g} on each parameter, {source}"
        return facts

    def _repr_html_(self) -> str:
        return self.make_card().to_html()


def _count_people(number: int) -> str:
    """Return a number of people in words."""
    return f"{number} {'person' if number == 1 else 'people'}"


class ShowsPromise:
    """Adds the promise to the diagram that scikit-learn draws of an estimator.

    scikit-learn decides whether there is a diagram: ``set_config(display="text")``
    turns both off.
    """

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
        certificate: PromiseCard | None = getattr(self, "certificate_", None)
        if certificate is None:
            return ""
        return certificate.make_card(type(self).__name__).to_html()
