# SPDX-License-Identifier: Apache-2.0
"""How many rows may be in memory at once, under a ceiling that the user sets.

The ceiling covers rows: batches that are being decoded, the block that a pass works on,
and the arrays a term makes of it. The model's own matrices are not rows; they come on
top, and do not grow with the table.
"""

from ..core.rows import BLOCK_ROWS
from ..exceptions import InvalidInput

DEFAULT_MEMORY = 1 << 28
LARGEST_BATCH = 1 << 16
# Copies of a block while a term works on it: as read, with its intercept, scaled.
BLOCKS_AT_ONCE = 6
# What decoding takes for each column whatever the batch: buffers, pages, dictionaries.
COLUMN_BYTES = 1 << 20


def rows_at_once(memory: int, *, n_columns: int) -> int:
    """Return how many rows to decode at once, a multiple of a block.

    Raises InvalidInput for a ceiling under which not even one block fits.
    """
    block = max(BLOCK_ROWS, 1 << n_columns.bit_length())
    row = 8 * (n_columns + 2)
    fixed = BLOCKS_AT_ONCE * block * row + COLUMN_BYTES * n_columns
    least = fixed + 2 * block * row
    if not memory >= least:
        raise InvalidInput(
            f"memory={memory} bytes is too little for blocks of {block} rows of "
            f"{n_columns} columns; give at least {least}"
        )
    # A batch, and the one that Arrow is about to hand over.
    n_blocks = (memory - fixed) // (2 * block * row)
    return min(n_blocks * block, max(LARGEST_BATCH, block))
