# SPDX-License-Identifier: Apache-2.0
"""DROP: California's lists of people who asked all data brokers to delete them.

Lists are read and answered as files (``files``), matched with a registry and applied as
one batch (``matching``), and fetched and sent by the platform's API (``api``).
"""

from .api import DropApi, DropError
from .files import DropList, read_identifiers, read_list, write_answers
from .matching import Matched, import_identifiers, match_lists

__all__ = [
    "DropApi",
    "DropError",
    "DropList",
    "Matched",
    "import_identifiers",
    "match_lists",
    "read_identifiers",
    "read_list",
    "write_answers",
]
