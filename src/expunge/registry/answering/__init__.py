# SPDX-License-Identifier: Apache-2.0
"""Answering: requests are accepted, settled, applied to models, and completed."""

__all__: list[str] = []
