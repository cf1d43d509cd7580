# SPDX-License-Identifier: Apache-2.0
"""Classes that somebody outside the package writes, by its public protocols alone."""
