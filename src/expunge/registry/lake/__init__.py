# SPDX-License-Identifier: Apache-2.0
"""Models whose rows stay in the user's files: how they are stored, and files rewritten.

``Lake`` says what a registry keeps of a long table. The registry reads files and never
changes them, except when it is asked to rewrite those that hold people who left.
"""

from .keeping import Lake, SourceStatus

__all__ = ["Lake", "SourceStatus"]
