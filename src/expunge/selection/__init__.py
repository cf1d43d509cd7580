# SPDX-License-Identifier: Apache-2.0
"""Choosing hyper-parameters in a way that removal can follow."""

__all__: list[str] = []
