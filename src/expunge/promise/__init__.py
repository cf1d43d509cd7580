# SPDX-License-Identifier: Apache-2.0
"""What a release promises: budgets, radii, noise, certificates, verification."""

__all__: list[str] = []
