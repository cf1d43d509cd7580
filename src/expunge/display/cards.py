# SPDX-License-Identifier: Apache-2.0
"""Cards: small boxes of HTML in a notebook, each complete in itself.

A notebook is saved with what its cells showed, and passed on. A card therefore shows
what it is given and nothing else, escapes all of it, fetches nothing, and is the same
each time it is drawn.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["promise", "warning", "plain"]
Cells: TypeAlias = tuple[tuple[str, ...], ...]

# The colours of cards and of the demo's page, for light and for dark screens.
LIGHT = (
    "--ink: #1c2430; --muted: #66707f; --line: #dde1e7; --page: #f5f6f8; --card: #fff; "
    "--blue: #0068a8; --orange: #c4500a; --green: #00785a; --soft: #eef3f8;"
)
DARK = (
    "--ink: #e4e8ee; --muted: #97a1b0; --line: #343c48; --page: #12161c; "
    "--card: #1a2028; --blue: #5bb4ec; --orange: #f0924e; --green: #45c39c; "
    "--soft: #202a36;"
)
EDGES: dict[Tone, str] = {
    "promise": "var(--green)",
    "warning": "var(--orange)",
    "plain": "var(--muted)",
}
# The reader's system decides between light and dark, unless JupyterLab, VS Code or
# Colab says what the notebook around the card looks like.
STYLE = f"""<style>
.expunge-card {{ {LIGHT} color-scheme: light; }}
@media (prefers-color-scheme: dark) {{
  .expunge-card {{ {DARK} color-scheme: dark; }} }}
[data-jp-theme-light="true"] .expunge-card, .vscode-light .expunge-card,
html[theme="light"] .expunge-card {{ {LIGHT} color-scheme: light; }}
[data-jp-theme-light="false"] .expunge-card, .vscode-dark .expunge-card,
html[theme="dark"] .expunge-card {{ {DARK} color-scheme: dark; }}
.expunge-card {{ color: var(--ink); background: var(--card); max-width: 42rem;
  border: 1px solid var(--line); border-left: 4px solid var(--edge);
  border-radius: .4rem; padding: .6rem .9rem; margin: .4rem 0;
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", sans-serif;
  overflow-wrap: anywhere; }}
.expunge-card p {{ margin: .3rem 0; }}
.expunge-card table {{ border-collapse: collapse; margin: .4rem 0; border: 0;
  font: inherit; }}
.expunge-card th, .expunge-card td {{ padding: .15rem .8rem .15rem 0; border: 0;
  text-align: left; vertical-align: top; color: var(--ink); background: var(--card);
  font-variant-numeric: tabular-nums; }}
.expunge-card th {{ color: var(--muted); font-weight: 400; }}
.expunge-card summary {{ cursor: pointer; color: var(--blue); }}
.expunge-card ul {{ margin: .2rem 0 .4rem; padding-left: 1.2rem; }}
</style>"""


@dataclass(frozen=True, slots=True)
class Card:
    """What a card shows; plain text throughout.

    Attributes
    ----------
    title
        What this is.
    lead
        What it says, in a sentence.
    tone
        "promise" where something is promised, "warning" where a reader could think so
        and nothing is.
    facts
        Names and values.
    tables
        Lines of cells, headings first.
    folded
        Headings that open, each with the sentences below it.
    """

    title: str
    lead: str
    tone: Tone = "plain"
    facts: Cells = ()
    tables: tuple[Cells, ...] = ()
    folded: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def to_html(self) -> str:
        """Return the card as HTML."""
        parts = [
            STYLE,
            f'<div class="expunge-card" style="--edge: {EDGES[self.tone]}">',
            f"<b>{escape(self.title)}</b>",
            f"<p>{escape(self.lead)}</p>",
            _table(_line(fact, head=1) for fact in self.facts),
        ]
        for headings, *lines in self.tables:
            top = _line(headings, head=len(headings))
            parts.append(_table([top, *(_line(line, head=0) for line in lines)]))
        parts += (_fold(heading, texts) for heading, texts in self.folded)
        return "\n".join(part for part in [*parts, "</div>"] if part)


def make_private_card(name: str) -> Card:
    """Return the card of a value that stays private: its name, and nothing of it."""
    return Card(name, "private")


def _table(lines: Iterable[str]) -> str:
    drawn = "\n".join(lines)
    return f"<table>\n{drawn}\n</table>" if drawn else ""


def _line(cells: tuple[str, ...], *, head: int) -> str:
    """Return a line of a table, whose first ``head`` cells are headings."""
    tags = ["th" if i < head else "td" for i in range(len(cells))]
    pairs = zip(tags, cells, strict=True)
    drawn = "".join(f"<{tag}>{escape(cell)}</{tag}>" for tag, cell in pairs)
    return f"<tr>{drawn}</tr>"


def _fold(heading: str, texts: tuple[str, ...]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<details><summary>{escape(heading)}</summary><ul>{items}</ul></details>"
