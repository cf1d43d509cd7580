# SPDX-License-Identifier: Apache-2.0
"""Write the files of the corpus that are missing."""

from tests.corpus import FOLDER, make_corpus

for path, data in make_corpus().items():
    file = FOLDER / path
    file.parent.mkdir(exist_ok=True)
    if not file.exists():
        file.write_bytes(data)
        print(path)
