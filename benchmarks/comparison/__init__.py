# SPDX-License-Identifier: Apache-2.0
"""The comparison: every way to forget, on the same rows and the same requests."""
