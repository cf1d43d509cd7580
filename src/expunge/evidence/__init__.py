# SPDX-License-Identifier: Apache-2.0
"""Evidence: what shows an authority how requests were answered, in one file."""

from .packing import make_page, pack_evidence, requests_between

__all__ = ["make_page", "pack_evidence", "requests_between"]
