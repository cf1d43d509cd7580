# SPDX-License-Identifier: Apache-2.0
"""Commands of a service: run it, and look after who may call it."""

from .serve import ServeCommand
from .tokens import TokenCreateCommand, TokenListCommand, TokenRevokeCommand
from .webhooks import (
    WebhookAddCommand,
    WebhookDeliveriesCommand,
    WebhookListCommand,
    WebhookRemoveCommand,
    WebhookReplayCommand,
)

__all__ = [
    "ServeCommand",
    "TokenCreateCommand",
    "TokenListCommand",
    "TokenRevokeCommand",
    "WebhookAddCommand",
    "WebhookDeliveriesCommand",
    "WebhookListCommand",
    "WebhookRemoveCommand",
    "WebhookReplayCommand",
]
