# SPDX-License-Identifier: Apache-2.0
"""How Sphinx makes a site of these pages; ``make docs`` runs it.

Nothing is fetched, neither here nor by a reader's browser: fonts, scripts and formulas
come from packages and are copied into the site.
"""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from expunge import __version__

project = "expunge"
author = "the authors of expunge"
copyright = author
release = version = __version__
root_doc = "index"
exclude_patterns = ["images"]
nitpicky = False

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# Pages that GitHub shows, too, have their own heading above what they include.
suppress_warnings = ["myst.header"]

autosummary_generate = True
autosummary_ignore_module_all = True
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
toc_object_entries_show_parents = "hide"
highlight_language = "text"
templates_path = ["templates"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "min_reported_time": 10**6,
}

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

# The one file of MathJax that needs no font: it draws formulas as SVG.
_mathjax = find_spec("sphinx-mathjax-offline")
assert _mathjax is not None and _mathjax.origin is not None
mathjax_path = "tex-svg-full.js"

html_theme = "pydata_sphinx_theme"
html_title = f"expunge {__version__}"
html_static_path = [
    "static",
    str(Path(_mathjax.origin).parent / "static/mathjax" / mathjax_path),
]
html_css_files = ["site.css"]
html_logo = html_favicon = "static/mark.svg"
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "expunge"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


def _lead_inside(app: Any, page: str, source: list[str]) -> None:
    """Let links to files beside this folder lead to the pages that include them."""
    pairs = {
        "../CONTRIBUTING.md": "contributing.md",
        "decisions/": "decisions/README.md",
    }
    for there, here in pairs.items():
        source[0] = re.sub(rf"\]\({re.escape(there)}(?=[)#])", f"]({here}", source[0])


def _read_docstring(
    app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Let |theta| be a norm and no substitution, and what is set apart a formula."""
    found, section = list[str](), False
    for line, above in zip(lines, ["", *lines], strict=False):
        section = section or line.startswith("---")
        if line.startswith("    ") and not (section or above):
            last = next((each for each in reversed(found) if each), "")
            if last and not last.startswith(("    ", "::")):
                found += ["::", ""]
        parts = re.split(r"(``.+?``)", line)
        if section or not line.startswith("    "):
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
        found.append("".join(parts))
    lines[:] = found


def _skip_theirs(
    app: Any, what: str, name: str, thing: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what estimators inherit from scikit-learn: its own pages have it."""
    return str(getattr(thing, "__module__", "")).startswith("sklearn.") or None


def setup(app: Any) -> None:
    """Connect what is written above."""
    app.connect("source-read", _lead_inside)
    app.connect("autodoc-process-docstring", _read_docstring, priority=400)
    app.connect("autodoc-skip-member", _skip_theirs)
