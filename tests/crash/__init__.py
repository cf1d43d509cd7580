# SPDX-License-Identifier: Apache-2.0
"""A registry whose processes are killed, whose server dies and whose power fails."""
