# SPDX-License-Identifier: Apache-2.0
"""SVG as matplotlib writes it, made a part of a page.

Matplotlib writes colours into every shape. Here each is a stand-in, replaced by a
variable of the style sheet afterwards, so that a drawing turns dark with its page.
"""

import re

# Stand-ins: matplotlib wants a colour, the style sheet decides which.
INK, MUTED, LINE, PAPER = "#010101", "#020202", "#030303", "#040404"
BLUE, ORANGE, GREEN = "#050505", "#060606", "#070707"
COLOURS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    PAPER: "var(--card)",
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    GREEN: "var(--green)",
}
PROLOGUE = re.compile(r".*?<svg[^>]*viewBox=\"([^\"]*)\"[^>]*>", re.DOTALL)
FONT = re.compile(r"font: (?:\w+ )*?([\d.]+px) [^;\"]*")
IDS = re.compile(r"(id=\"|url\(#|xlink:href=\"#)")


def inlined(svg: str, name: str) -> str:
    """Return an SVG file as a part of a page: its colours, its fonts, ids of its own.

    Parameters
    ----------
    svg
        As matplotlib writes it.
    name
        Goes before every id, which must be unique on the page.
    """
    opening = f'<svg viewBox="\\1" role="img" aria-labelledby="{name}-caption">'
    svg = PROLOGUE.sub(opening, svg, count=1)
    svg = IDS.sub(rf"\g<1>{name}-", svg).replace("xlink:href", "href")
    svg = FONT.sub(r"font-size: \1", svg)
    for stand_in, variable in COLOURS.items():
        svg = svg.replace(stand_in, variable)
    return svg.strip()
