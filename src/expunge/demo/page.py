# SPDX-License-Identifier: Apache-2.0
"""Page: a story as one HTML file, complete in itself.

A pure function of what was measured and of the drawings; where there are none, tables
say the same. Sections come in the order in which things happened.

Pieces of a page: text in, HTML out, everything escaped but drawings.

Style of the page: light and dark, on a phone and on paper, nothing fetched.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from .values import (
    Step,
    Story,
    accuracies,
    decisions,
    milliseconds,
    nearness,
    people,
    percent,
    promise,
    ratio,
    speeds,
)

STYLE = """
:root { color-scheme: light dark;
  --ink: #1c2430; --muted: #66707f; --line: #dde1e7; --page: #f5f6f8; --card: #fff;
  --blue: #0068a8; --orange: #c4500a; --green: #00785a; --soft: #eef3f8; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e4e8ee; --muted: #97a1b0; --line: #343c48; --page: #12161c; --card: #1a2028;
  --blue: #5bb4ec; --orange: #f0924e; --green: #45c39c; --soft: #202a36; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; margin: 0;
  color: var(--ink); background: var(--page); }
main { max-width: 46rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 0 0 .6rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1.1rem 1.2rem; margin: 1rem 0; }
p { margin: .5rem 0; }
.lead { font-size: 1.05rem; }
.private { border-left: 4px solid var(--orange); padding: .2rem 0 .2rem .8rem; }
.tiles { display: grid; gap: .7rem; margin: 1rem 0;
  grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.5rem; line-height: 1.25; color: var(--blue); }
.tile span { color: var(--muted); font-size: .86rem; line-height: 1.35;
  display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .6rem 0; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { color: var(--muted); font-weight: 600; }
td { font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0 .4rem; }
svg { display: block; width: 100%; max-width: 34rem; height: auto; margin: 0 auto;
  font-family: inherit; }
figcaption { color: var(--muted); font-size: .88rem; margin-top: .4rem; }
blockquote { margin: .6rem 0; padding: .6rem .9rem; background: var(--soft);
  border-radius: .4rem; font-size: .92rem; overflow-wrap: anywhere; }
.stands, .refused { font-weight: 600; }
.stands { color: var(--green); } .refused { color: var(--orange); }
ul { padding-left: 1.2rem; margin: .4rem 0; } li { margin: .25rem 0; }
footer { color: var(--muted); font-size: .85rem; }
@media (max-width: 34rem) { section { padding: .9rem .8rem; } h1 { font-size: 1.45rem; }
  th, td { padding: .3rem .35rem; } .tiles { grid-template-columns: 1fr 1fr; } }
@media print { :root { color-scheme: light; --ink: #000; --muted: #444; --line: #bbb;
  --page: #fff; --card: #fff; --blue: #0068a8; --orange: #b04400; --green: #006b50;
  --soft: #f3f3f3; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  section { border: 0; border-top: 1px solid var(--line); border-radius: 0;
    padding: .6rem 0; }
  .wide { overflow: visible; }
  figure, .tile, table, blockquote, li { break-inside: avoid; }
  h2 { break-after: avoid; }
  svg { max-width: 15cm; } }
"""


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


CAPTIONS: Mapping[str, str] = {
    "distance": "How far the noise-free model is from retraining after each request, "
    "and how far it was certified to be at most, on a logarithmic axis. It falls where "
    "the model was moved to retraining.",
    "accuracy": "Accuracy on people in no model. Each release carries fresh noise, so "
    "its accuracy moves a little from one to the next.",
    "times": "Median time for one person, in this run. Blue: all of it, from accepting "
    "to signing. Green and orange: the arithmetic alone.",
    "life": "One request, from asking to checking its receipt.",
    "tree": "The end of the ledger's tree. Blue: the request's entry and what a reader "
    "computes from it on the way up. Orange: the hashes in the receipt. The root must "
    "be the one that the operator signed. Numbers below are entries.",
}
NO_PLOTS = (
    "Plots are left out: matplotlib is not installed. pip install expunge[plots] "
    "brings it; the tables hold the same figures."
)
PRIVATE = (
    "This report is the operator's own. It names nobody, but distances, radii, "
    "decisions and times depend on the people who left: of a real registry it must not "
    "be published. Here the data are public."
)
# How many lines a table of requests has.
SAMPLES = 6


def page(story: Story, drawings: Mapping[str, str]) -> str:
    """Return the report.

    Parameters
    ----------
    story
        What was measured.
    drawings
        SVG texts by name, as ``plots.drawings`` makes them; may be empty.
    """
    drawn = {
        name: figure(name, drawings.get(name, ""), caption)
        for name, caption in CAPTIONS.items()
    }
    title = f"{story.batch.n_forgotten} people forgotten"
    parts = [
        f"<h1>{title}</h1>",
        *_introduction(story),
        *(paragraph(f"FAILED: {text}.", "private") for text in story.failures()),
        "" if drawings else paragraph(NO_PLOTS),
        _contract(story),
        _plan(story),
        _forgetting(story, drawn),
        _times(story, drawn),
        _life(story, drawn),
        _receipt(story, drawn),
        _forgeries(story),
        _limits(story),
        _footer(story),
    ]
    return document(f"expunge: {title}", parts)


def _introduction(story: Story) -> tuple[str, ...]:
    lead = (
        f"A model of {story.setting.n_people} patients was fitted under a contract. "
        f"{len(story.requests)} of them asked to be forgotten one by one, "
        f"{story.n_batch} together. All that is measured on this page is of that run."
    )
    times, first, last = story.typical, story.fit, story.batch
    caught = sum(not forgery.stands for forgery in story.forgeries)
    slower = ratio(times.retraining, times.removal)
    shown = {
        f"{last.distance:.2g}": "from retraining at the end; certified to be at most "
        f"{last.radius:.2g}",
        percent(last.accuracy): "accuracy of the last release; of the first "
        f"{percent(first.accuracy)}, retrained {percent(last.retrained_accuracy)}",
        milliseconds(times.removal): f"for a removal, {slower} times that for a fit; "
        f"{milliseconds(times.alone)} until it is on disk, erased and signed",
        f"{story.n_receipts} of {last.n_forgotten}": "receipts stand, checked offline; "
        f"{caught} of {len(story.forgeries)} forgeries refused",
    }
    return paragraph(lead, "lead"), paragraph(PRIVATE, "private"), tiles(shown)


def _contract(story: Story) -> str:
    paper = story.certificate
    return section(
        "A contract, before anything else",
        paragraph(f"People: {people(story.setting)}."),
        paragraph(f"Promised: {promise(paper)}."),
        paragraph(
            "These figures are constants of the program, fixed before the run and the "
            "same whoever leaves; who wrote it knew these data, as everybody may. The "
            f"noise comes from a {paper.noise_source} source. The certificate says: "
            f"{paper.status}, {paper.claim}."
        ),
    )


def _plan(story: Story) -> str:
    outlook = story.outlook
    rows = [
        (each.kind, str(each.without_rows), str(each.with_rows), each.then)
        for each in outlook.foreseen
    ]
    return section(
        "What the contract allows",
        paragraph(
            f"A radius up to {outlook.allowed:.2g} fits. So many people may leave "
            "before the registry has to look at the remaining rows, and before it has "
            "to move the model towards retraining:"
        ),
        table(("who leaves", "without a look", "with one", "one more is"), rows),
        paragraph(
            f"Accuracy on the people in the model: {percent(outlook.released)} with "
            f"the contract's noise, {percent(outlook.noise_free)} without. A plan "
            "looks at the rows, so a contract must not be chosen from it."
        ),
    )


def _forgetting(story: Story, drawn: Mapping[str, str]) -> str:
    head = ("gone", "distance", "radius", "released", "retrained")
    rows = [
        (
            str(step.n_forgotten),
            f"{step.distance:.2g}",
            f"{step.radius:.2g}",
            percent(step.accuracy),
            percent(step.retrained_accuracy),
        )
        for step in sampled(story.answers)
    ]
    return section(
        "Forgetting, held against retraining",
        paragraph(
            "A registry shows its noise-free model to nobody. This demonstration has "
            "all rows and computed each answer again: the radius that it found was "
            "that of the private record. Then scikit-learn fitted the remaining "
            f"people. The model is {nearness(story)}."
        ),
        drawn["distance"],
        paragraph(
            f"Accuracy: {accuracies(story)}. One of the {story.setting.n_held_out} "
            f"people it is measured on makes {percent(1 / story.setting.n_held_out)}."
        ),
        drawn["accuracy"],
        table(head, rows),
        paragraph(
            "What the registry did to keep the contract, and how often: "
            f"{decisions((*story.requests, story.batch))}. An answer is accepted as it "
            "is, or after a look at the remaining rows, or polished, which moves the "
            "model to retraining."
        ),
    )


def _times(story: Story, drawn: Mapping[str, str]) -> str:
    times = story.typical
    rows = [
        ("whole request, answered alone", times.alone),
        (f"whole request, in a batch of {story.n_batch}", times.in_batch),
        ("removal alone", times.removal),
        ("scikit-learn's fit alone", times.retraining),
    ]
    return section(
        "Time",
        *(paragraph(f"{words[0].upper()}{words[1:]}.") for words in speeds(story)),
        drawn["times"],
        table(
            ("for one person", "median", "compared with a fit"),
            [
                (name, milliseconds(took), f"{ratio(took, times.retraining)} x")
                for name, took in rows
            ],
        ),
        paragraph(
            "A whole request is written to disk, erased from it and signed, which "
            "retraining would need as well. With so few people a fit is cheap; its "
            "time grows with the number of people, that of a removal does not, unless "
            "the remaining rows are looked at."
        ),
    )


def _life(story: Story, drawn: Mapping[str, str]) -> str:
    rows = [
        (stage.name, milliseconds(stage.start), milliseconds(stage.stop - stage.start))
        for stage in story.life
    ]
    return section(
        "The life of one request",
        drawn["life"],
        table(("stage", "begins after", "takes"), rows),
    )


def _receipt(story: Story, drawn: Mapping[str, str]) -> str:
    opened, shipped, nodes = story.opened, story.shipped, list(story.tree.walk())
    place = next(node.start for node in nodes if node.role == "entry")
    n_hashes = sum(node.role == "proof" for node in nodes)
    return section(
        "A receipt, checked by a stranger",
        paragraph(
            f"Release {shipped.number} left as {shipped.name}, {shipped.n_bytes} "
            f"bytes. Each of the {story.n_receipts} requests has a receipt. One of "
            f"them, of {opened.n_bytes} bytes, as somebody reads it who has the public "
            "key and nothing else:"
        ),
        verdict(stands=opened.stands, says=opened.says),
        folded("What was checked", bullets(opened.findings)),
        drawn["tree"],
        paragraph(
            f"The ledger has {story.n_entries} entries. The proof leads from entry "
            f"{place} to the root over {story.tree.stop} of them, "
            f"{story.tree.digest[:16]}..., by {n_hashes} hashes."
        ),
    )


def _forgeries(story: Story) -> str:
    parts = []
    for forgery in story.forgeries:
        parts.append(paragraph(f"{forgery.done} ({forgery.name})."))
        parts.append(verdict(stands=forgery.stands, says=forgery.says))
    return section("Forgeries", *parts)


def _limits(story: Story) -> str:
    paper = story.certificate
    return section(
        "What is and what is not promised",
        paragraph(
            "Promised: whoever sees a release can hardly tell whether the operator "
            "removed these people or retrained without them (epsilon "
            f"{paper.epsilon:g}, delta {paper.delta:g}). This holds provided that"
        ),
        bullets(paper.assumptions),
        paragraph("The receipt says nothing about"),
        bullets(story.opened.not_covered),
    )


def _footer(story: Story) -> str:
    machine = story.machine
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions)
    words = (
        f"Measured on {machine.processor}, {machine.system}; {versions}. One run of "
        f"{story.seconds:.0f} seconds, seed {story.setting.seed}."
    )
    return f"<footer>{paragraph(words)}</footer>"


def sampled(steps: Sequence[Step]) -> list[Step]:
    """Return a few steps, evenly spread, the first and the last among them."""
    last = len(steps) - 1
    places = {round(i * last / (SAMPLES - 1)) for i in range(SAMPLES)}
    return [steps[place] for place in sorted(places)]
