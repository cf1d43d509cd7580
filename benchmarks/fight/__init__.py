# SPDX-License-Identifier: Apache-2.0
"""The fair fight: every way to forget, given the same rows and the same requests."""
