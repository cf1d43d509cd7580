# SPDX-License-Identifier: Apache-2.0
"""API: our own routes under ``/api/v1``, each one call of the registry."""

from fastapi import APIRouter

from . import ledger, models, requests, status

__all__ = ["PREFIX", "make_router"]

PREFIX = "/api/v1"


def make_router() -> APIRouter:
    """Return all routes of the API."""
    router = APIRouter(prefix=PREFIX)
    for part in (requests, models, ledger, status):
        router.include_router(part.router)
    return router
