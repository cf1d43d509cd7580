# SPDX-License-Identifier: Apache-2.0
"""Leave-one-out errors in closed form, each with a bar."""

from .looks import LeftOut, leave_one_out, loo_error

__all__ = ["LeftOut", "leave_one_out", "loo_error"]
