# SPDX-License-Identifier: Apache-2.0
"""Sheets: what a record of processing and a privacy notice can say of a model.

Purposes, legal grounds and categories of people are the controller's to say; where they
belong the sheet says so. Nothing on it depends on a person.
"""

from dataclasses import asdict, dataclass
from typing import Any

from ..exceptions import InvalidInput
from ..ledger.documents import day_of
from ..promise.scope import state_limit
from ..promise.verification import verify
from ..registry import Registry
from ..rights.regimes import regime_named
from .writing import environment


@dataclass(frozen=True, slots=True)
class ProcessingSheet:
    """What is known of a model: rows of a table, and paragraphs of a notice.

    A row without text is for the controller to fill in.
    """

    model: str
    rows: tuple[tuple[str, str], ...]
    notice: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)

    def to_html(self) -> str:
        """Return it as one HTML file, for a screen and for print."""
        return environment().get_template("processing.html.j2").render(sheet=self)


def describe_processing(registry: Registry, name: str) -> ProcessingSheet:
    """Return what a record of processing can say of a model."""
    models = {one.name: one for one in registry.status().models}
    if name not in models:
        raise InvalidInput(
            f"there is no model {name!r}; there are {', '.join(models) or 'none'}"
        )
    model, settings = models[name], registry.settings
    certificate = model.certificate
    recipients = ", ".join(settings.recipients)
    backups = settings.backup_days
    kept = (
        "for good, or until the person comes back"
        if settings.excluded_days is None
        else f"for {settings.excluded_days} days after the answer"
    )
    rows = (
        ("Model", f"{name}, made on {day_of(model.made)}"),
        ("Controller, and data protection officer", ""),
        ("Purposes", ""),
        ("Legal ground", ""),
        ("Categories of people and of data", ""),
        (
            "What is trained",
            f"{model.estimator}, {certificate.n_parameters} parameters",
        ),
        ("Recipients of the data", recipients),
        ("Transfers to other countries", ""),
        (
            "Time limits for erasure",
            "on request, from every model at once; backups expire "
            + (
                "at a time that was not stated"
                if backups is None
                else f"within {backups} days"
            ),
        ),
        (
            "Kept after an erasure",
            f"a code of the person, by which no later training uses their data, {kept}",
        ),
        (
            "Security (Art. 32)",
            "rows are sealed under keys of each person, which are destroyed with them; "
            "every answer is in a ledger that cannot be changed unnoticed",
        ),
        ("What is promised of the published parameters", verify(certificate).says),
        ("Law that gives deadlines", regime_named(settings.regime).title),
    )
    return ProcessingSheet(name, rows, _write_notice(name, certificate))


def _write_notice(name: str, certificate: Any) -> tuple[str, ...]:
    """Return paragraphs of a privacy notice, in plain words."""
    if certificate.status == "no promise":
        promise = (
            "We then train the model without your data. Nothing is promised about what "
            "is left of them in parameters that are public already."
        )
    elif certificate.status == "exact":
        promise = (
            "Then the influence of your data on the published parameters of the model "
            "is removed: to the last bit, they are what training without your data "
            "gives."
        )
    else:
        limit = state_limit(certificate.epsilon or 0.0, certificate.delta or 0.0)
        promise = (
            "Then the influence of your data on the published parameters of the model "
            "is removed. Up to noise that hides the difference, they are what training "
            "without your data gives: someone who thought 50:50 that you were in the "
            f"data is {limit} after seeing the model."
        )
    return (
        f"We train a model that we call {name} with records about people, which may "
        "include records about you. You may ask us to erase, correct or restrict these "
        "records, and you may object to their use.",
        promise,
        "You get a receipt that anyone can check. Afterwards we keep a code that we "
        "compute from what identifies you, so that no later training uses your data.",
    )
