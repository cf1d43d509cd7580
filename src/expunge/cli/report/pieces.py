# SPDX-License-Identifier: Apache-2.0
"""Pieces of a page: text in, HTML out, everything escaped but drawings."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from .style import STYLE


def document(title: str, parts: Iterable[str]) -> str:
    """Return a whole page, its style within it."""
    body = "\n".join(filter(None, parts))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a section; empty parts are left out."""
    inner = "\n".join(filter(None, parts))
    return f"<section>\n<h2>{escape(title)}</h2>\n{inner}\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph, of a class of the style sheet if named."""
    opening = f'<p class="{kind}">' if kind else "<p>"
    return f"{opening}{escape(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    """Return sentences as a list."""
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"


def folded(title: str, inner: str) -> str:
    """Return a part that is closed until somebody wants it."""
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"


def tiles(figures: Mapping[str, str]) -> str:
    """Return figures, large, with a few words below each."""
    made = (
        f'<div class="tile"><b>{escape(figure)}</b><span>{escape(words)}</span></div>'
        for figure, words in figures.items()
    )
    return f'<div class="tiles">{"".join(made)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table that scrolls by itself where it is too wide."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table>\n<tr>{top}</tr>\n{body}\n</table></div>'


def figure(name: str, drawing: str, caption: str) -> str:
    """Return a drawing with its caption; nothing without a drawing."""
    if not drawing:
        return ""
    words = f'<figcaption id="{name}-caption">{escape(caption)}</figcaption>'
    return f"<figure>\n{drawing}\n{words}\n</figure>"


def verdict(*, stands: bool, says: str) -> str:
    """Return what a check says, its outcome first."""
    mark, word = ("stands", "It stands.") if stands else ("refused", "Refused.")
    return f'<blockquote><span class="{mark}">{word}</span> {escape(says)}</blockquote>'
