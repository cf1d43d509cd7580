# SPDX-License-Identifier: Apache-2.0
"""Report: the demonstration as a story that is measured, and a page that tells it."""

__all__: list[str] = []
