# SPDX-License-Identifier: Apache-2.0
"""``python -m expunge`` is the command ``expunge``."""

from .cli import main

if __name__ == "__main__":
    main()
