# SPDX-License-Identifier: Apache-2.0
"""Outbound: everything that leaves the service of its own accord.

events      what changed, as messages to addresses, and the form of our own
policy      whom the service may call
sending     one call; the only code that opens a connection to somebody else
outbox      the thread that queues what changed and sends what is due
"""

from .outbox import Outbox
from .policy import Policy
from .sending import Message

__all__ = ["Message", "Outbox", "Policy"]
