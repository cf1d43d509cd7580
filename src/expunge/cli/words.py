# SPDX-License-Identifier: Apache-2.0
"""Words: what the registry's values are called when they are printed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..certificate import Certificate
    from ..registry import ModelStatus, ReleaseStatus, RequestStatus


def day(time: int) -> str:
    """Return a time to the minute, in UTC."""
    from ..ledger.pages import date

    return date(time)[:16]


def promise(certificate: "Certificate") -> str:
    """Return in a few words what a certificate promises."""
    if certificate.status == "radius-only":
        return "none: no claim is made"
    about = "each release"
    if certificate.releases is not None:
        about = f"{certificate.releases} releases together"
    return (
        f"epsilon {certificate.epsilon:g}, delta {certificate.delta:g} for {about}, "
        f"by noise of {certificate.sigma:g}"
    )


def left(certificate: "Certificate") -> int | None:
    """Return how many releases the contract has left; None if it sets no number."""
    if certificate.releases is None:
        return None
    return certificate.releases - certificate.n_releases


def left_in_words(certificate: "Certificate") -> str:
    """Return how many releases are left, for a table."""
    number = left(certificate)
    return "any number" if number is None else str(number)


def model_json(model: "ModelStatus") -> dict[str, Any]:
    """Return a model as JSON data."""
    from ..canonical import loads

    return {
        "name": model.name,
        "estimator": model.estimator,
        "release": model.number,
        "made": model.made,
        "n_people": model.n_people,
        "releases_left": left(model.certificate),
        "certificate": loads(model.certificate.to_json(), "Certificate"),
    }


def request_json(request: "RequestStatus") -> dict[str, Any]:
    """Return a request as JSON data."""
    return {
        "request": request.request,
        "stage": request.stage,
        "accepted": request.accepted,
        "deadline": request.deadline,
        "completed": request.completed,
        "n_subjects": request.n_subjects,
        "error": request.error,
    }


def release_json(release: "ReleaseStatus") -> dict[str, Any]:
    """Return a release as JSON data."""
    return {
        "model": release.model,
        "release": release.number,
        "made": release.made,
        "digest": release.digest,
        "superseded": release.superseded,
        "shipped": [{"time": time, "file": file} for time, file in release.shipped],
        "withdrawn": release.withdrawn,
    }
