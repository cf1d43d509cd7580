# SPDX-License-Identifier: Apache-2.0
"""Words: what the registry's values are called when they are printed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..certificate import Certificate
    from ..registry import ModelStatus, ReleaseStatus, RequestStatus


def day(time: int) -> str:
    """Return the day of a time, in UTC: a finer one tells how long an answer took."""
    from ..ledger.pages import day_of

    return day_of(time)


def day_if_any(time: int | None) -> str | None:
    """Return the day of a time, or None for None."""
    return None if time is None else day(time)


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
        "made": day(model.made),
        "n_people": model.n_people,
        "releases_left": left(model.certificate),
        "certificate": loads(model.certificate.to_json(), "Certificate"),
    }


def request_json(request: "RequestStatus") -> dict[str, Any]:
    """Return a request as JSON data."""
    return {
        "request": request.request,
        "stage": request.stage,
        "accepted": day(request.accepted),
        "deadline": day(request.deadline),
        "completed": day_if_any(request.completed),
        "n_subjects": request.n_subjects,
        "error": request.error,
    }


def release_json(release: "ReleaseStatus") -> dict[str, Any]:
    """Return a release as JSON data."""
    return {
        "model": release.model,
        "release": release.number,
        "made": day(release.made),
        "digest": release.digest,
        "superseded": day_if_any(release.superseded),
        "shipped": [{"day": day(time), "file": file} for time, file in release.shipped],
        "withdrawn": day_if_any(release.withdrawn),
    }
