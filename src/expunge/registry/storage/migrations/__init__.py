# SPDX-License-Identifier: Apache-2.0
"""Steps from one version of the tables to the next; Alembic runs them."""

__all__: list[str] = []
