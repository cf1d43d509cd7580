# SPDX-License-Identifier: Apache-2.0
"""The page on notebooks, run as a notebook and saved: what its cells show is public.

Needs nbclient and ipykernel: ``pip install nbclient ipykernel``.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

nbclient: Any = pytest.importorskip("nbclient")
nbformat: Any = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parents[1]
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
# Prints, in the kernel, what the other cells must not have shown.
SECRETS = """
from expunge.linear_model.base import private_model

private, record = private_model(model), model.record_
print(record.radius, record.n_samples, record.salt.hex(), *record.timings.values())
print(*private.answer.draft.theta, *private_model(tuned).answer.draft.theta)
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the page as a notebook that was run."""
    page = (ROOT / "docs/notebook.md").read_text()
    book = nbformat.v4.new_notebook()
    sources = [*CODE.findall(page), "compared.plot()", SECRETS]
    book.cells = [nbformat.v4.new_code_cell(text) for text in sources]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    folder = tmp_path_factory.mktemp("notebook")
    client = nbclient.NotebookClient(
        book, timeout=300, resources={"metadata": {"path": str(folder)}}
    )
    # Not in the user's home, which may not be theirs to write.
    own = {"PYTHONPATH": path, "IPYTHONDIR": str(folder / "ipython")}
    return client.execute(env={**os.environ, **own})


def shown(cell: Any, kind: str) -> list[str]:
    """Return what a cell shows in a format."""
    found = [output.get("data", {}) for output in cell.outputs]
    return [data[kind] for data in found if kind in data]


def find_cell(notebook: Any, ending: str) -> Any:
    """Return the cell whose code ends so."""
    (cell,) = (c for c in notebook.cells if c.source.strip().endswith(ending))
    return cell


def test_cells_show_cards(notebook: Any) -> None:
    (html,) = shown(find_cell(notebook, "\nmodel"), "text/html")
    assert "sk-top-container" in html and "<p>Up to noise that hides" in html
    (html,) = shown(find_cell(notebook, "\nmodel.record_"), "text/html")
    assert html.endswith("<b>Record</b>\n<p>private</p>\n</div>")
    (html,) = shown(find_cell(notebook, "\ncompared"), "text/html")
    assert "Before and after" in html and "predicted differently." in html
    (image,) = shown(find_cell(notebook, "compared.plot()"), "image/png")
    assert len(image) > 1000


def test_each_bar_is_saved_once_and_finished(notebook: Any) -> None:
    cell = find_cell(notebook, 'tuned.forget(["patient 17"])')
    bars = [text for text in shown(cell, "text/plain") if "[#" in text]
    assert bars == [
        f"tuning 2 candidates [{'#' * 30}] 10/10",
        f"forgetting [{'#' * 30}] 1/1",
    ]
    streams = [output for output in cell.outputs if output.output_type == "stream"]
    assert not streams


def test_saved_notebook_holds_nothing_private(notebook: Any) -> None:
    *cells, last = notebook.cells
    (secrets,) = (output.text.split() for output in last.outputs)
    assert len(secrets) > 60
    saved = " ".join(str(output) for cell in cells for output in cell.outputs)
    for secret in secrets:
        assert not re.search(rf"(?<![\w.]){re.escape(secret)}(?![\w.])", saved)
        if "." in secret:  # shortened, too
            assert f"{float(secret):.5g}" not in saved
    assert "patient" not in saved
