# SPDX-License-Identifier: Apache-2.0
"""What Alembic runs: the missing steps, in the transaction that it is given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
