# SPDX-License-Identifier: Apache-2.0
"""The demo: a run on public data that is measured, and a page that shows it."""

__all__: list[str] = []
