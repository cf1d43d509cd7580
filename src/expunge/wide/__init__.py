# SPDX-License-Identifier: Apache-2.0
"""Wide models: solved by passes over the rows, without a Hessian."""

__all__: list[str] = []
