# SPDX-License-Identifier: Apache-2.0
"""One self-contained page of a run: tables, plots inside, nothing fetched."""

from collections.abc import Iterable, Mapping
from html import escape

from ..report import Section, Table, targets_table
from .figures import Machine

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto;
       padding: 0 1em; color: #222; background: #fff; }
table { border-collapse: collapse; margin: 1em 0; font-size: 13px; display: block;
        overflow-x: auto; }
th, td { padding: .25em .7em; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
th { border-bottom: 2px solid #888; }
.missed { color: #b00020; font-weight: bold; }
figure { margin: 1.5em 0; } svg { max-width: 100%; height: auto; }
li { max-width: 60em; }
"""


def page(
    heading: str,
    sections: Iterable[Section],
    plots: Mapping[str, str],
    machines: Iterable[Machine],
) -> str:
    """Return the page.

    Parameters
    ----------
    heading
        Its title.
    sections
        Tables, targets, notes.
    plots
        SVG texts by caption, the first of them on top.
    machines
        Where the figures were measured.
    """
    drawings = [figure(caption, text) for caption, text in plots.items()]
    parts = [f"<h1>{escape(heading)}</h1>", *map(machine, machines), *drawings[:1]]
    parts += [section(item) for item in sections]
    parts += drawings[1:]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(heading)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def machine(found: Machine) -> str:
    """Return a paragraph about a machine."""
    libraries = ", ".join(f"{name} {number}" for name, number in found.versions.items())
    return (
        f"<p>Measured on {escape(found.processor)}, {found.processors} visible, one "
        f"thread; Python {escape(found.python)} on {escape(found.system)}; "
        f"{escape(libraries)}.</p>"
    )


def section(found: Section) -> str:
    """Return a section with its tables, notes and targets."""
    parts = [f"<h2>{escape(found.title)}</h2>"]
    parts += [table(item) for item in found.tables]
    notes = "".join(f"<li>{escape(note)}</li>" for note in found.notes)
    parts.append(f"<ul>{notes}</ul>" if notes else "")
    if found.targets:
        parts.append(table(targets_table(found.targets)))
    return "\n".join(parts)


def table(found: Table) -> str:
    """Return a table; what was missed is marked."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in found.headers)
    rows = ["".join(map(_cell, row)) for row in found.rows]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _cell(text: str) -> str:
    """Return one cell."""
    mark = ' class="missed"' if text == "MISSED" else ""
    return f"<td{mark}>{escape(text)}</td>"


def figure(caption: str, svg: str) -> str:
    """Return a drawing inside the page, without the prologue of a file."""
    drawing = svg[svg.index("<svg") :]
    return f"<figure>\n{drawing}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"
