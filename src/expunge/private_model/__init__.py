# SPDX-License-Identifier: Apache-2.0
"""The private model: everything that must stay secret, in one place."""

__all__: list[str] = []
