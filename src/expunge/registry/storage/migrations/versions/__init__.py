# SPDX-License-Identifier: Apache-2.0
"""One module for each version, never changed once released."""

__all__: list[str] = []
