# SPDX-License-Identifier: Apache-2.0
"""The attack: random problems and requests, checked by an independent oracle."""
