# SPDX-License-Identifier: Apache-2.0
"""OpenDSR: the registry as a processor of the protocol that consent platforms speak.

Version 2.0, and OpenGDPR 1.0 before it. Erasure is the one type of request: access and
portability ask for a copy of somebody's data, which a model does not have.
"""

from .answers import make_composers
from .routes import make_router
from .signing import Processor, open_processor

__all__ = ["Processor", "make_composers", "make_router", "open_processor"]
