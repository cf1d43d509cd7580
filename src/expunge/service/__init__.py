# SPDX-License-Identifier: Apache-2.0
"""Service: a registry over HTTP, with an API, a dashboard and the desks' protocols.

It is a skin: each route parses, makes one call of the registry, and answers. Needs
``expunge[service]``.
"""

from .windows import Windows

__all__ = ["Windows"]
