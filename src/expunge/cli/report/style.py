# SPDX-License-Identifier: Apache-2.0
"""Style of the page: light and dark, on a phone and on paper, nothing fetched."""

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
