# SPDX-License-Identifier: Apache-2.0
"""The adversary: random problems and requests, judged by an independent oracle."""
