# SPDX-License-Identifier: Apache-2.0
"""Recovery: journal and store are brought together, after a crash or from a backup."""

__all__: list[str] = []
