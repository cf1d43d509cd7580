# SPDX-License-Identifier: Apache-2.0
"""Fits and requests on a GPU, beside the processor of the same machine."""

__all__: list[str] = []
