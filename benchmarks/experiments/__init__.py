# SPDX-License-Identifier: Apache-2.0
"""The paper's experiments and the comparison: run, kept, drawn and written up."""

__all__: list[str] = []
