# SPDX-License-Identifier: Apache-2.0
"""Ids of requests: random, so that they tell nothing in a public ledger."""

import re

from ..exceptions import InvalidInput

_REQUEST = re.compile(r"[0-9a-f]{32}")


def require_request(request: object) -> None:
    """Refuse the id of a request that could not be one."""
    if not isinstance(request, str) or not _REQUEST.fullmatch(request):
        shown = repr(request)[:60]
        raise InvalidInput(
            f"request {shown}; give 32 hexadecimal digits in lower case, random ones: "
            "a ticket number or an address would stay in the ledger for ever"
        )
