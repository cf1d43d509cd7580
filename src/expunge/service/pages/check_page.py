# SPDX-License-Identifier: Apache-2.0
"""The page that checks a receipt without a network, whole in one file.

A person keeps it beside the receipt. Its scripts are those that the dashboard uses. A
policy in the page itself allows these scripts, by their hashes, and no connection, so
that a reader need not trust the promise that nothing leaves the machine.
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256

from markupsafe import Markup

from .rendering import environment, read_static

# In one file the parts of the script see one another without it.
_IMPORT = re.compile(r'^import .* from "\./check\.js";\n', re.MULTILINE)


@cache
def make_check_page() -> str:
    """Return the page as HTML."""
    script = read_static("check.js") + _IMPORT.sub("", read_static("receipt.js"))
    style = read_static("check.css")
    return (
        environment()
        .get_template("check.html.j2")
        .render(
            script=Markup(script),
            style=Markup(style),
            script_hash=_hash_source(script),
            style_hash=_hash_source(style),
        )
    )


def _hash_source(text: str) -> str:
    """Return the hash by which a policy names what stands in the page."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
