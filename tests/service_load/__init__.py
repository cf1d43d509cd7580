# SPDX-License-Identifier: Apache-2.0
"""A service under load, under kill -9, and before an enemy with a stopwatch."""
