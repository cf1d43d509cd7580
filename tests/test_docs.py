# SPDX-License-Identifier: Apache-2.0
"""What the documents say is true: code runs, names exist, decisions are numbered."""

import ast
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import expunge
from tests.names import Tree, broken_links, stale

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
TREE = Tree(ROOT)
PAPER, RADII = ROOT / "docs/paper.md", ROOT / "docs/radii.md"

PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)[^`]*`")
PACKAGE_NAME = re.compile(r"`(expunge(?:\.\w+)+)[^`]*`")
NAME = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)*)(?:\([^`]*)?`")
FOLDERS = "src|tests|docs|examples|benchmarks|connectors|deploy"
FILE = re.compile(rf"`((?:{FOLDERS})/[\w./-]+\.\w+)`")
FENCED = re.compile(r"^```.*?^```$|{math}`[^`]+`", re.DOTALL | re.MULTILINE)
# Names of other software, which no code of ours spells, and beginnings of names.
FOREIGN = """Dataset.to_batches FORWARDED_ALLOW_IPS OTEL_EXPORTER_OTLP_ENDPOINT
    serde_jcs sklearn.set_config requires_fit tree_reduce""".split()
BEGINNINGS = "apply_ delete_ forget_ write_".split()

DECISION_LINES = 60


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_blocks(text: str) -> list[str]:
    """Return the fenced blocks, each padded so that its line numbers are the page's."""
    return [
        "\n" * text.count("\n", 0, block.start(1)) + block[1]
        for block in PYTHON_BLOCK.finditer(text)
    ]


@cache
def defined_tests(path: Path) -> set[str]:
    """Return the tests of a file as pytest names them, classes included."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        found.add(getattr(node, "name", ""))
        if isinstance(node, ast.ClassDef):
            inner = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            found |= {f"{node.name}::{item.name}" for item in inner}
    return found


@pytest.mark.parametrize(
    "page", [page for page in PAGES if PYTHON_BLOCK.search(page.read_text())], ids=name
)
def test_code_on_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in python_blocks(page.read_text()):
        exec(compile(block, name(page), "exec"), namespace)


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, example], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_documented() -> None:
    words = set(re.findall(r"\w+", " ".join(page.read_text() for page in PAGES)))
    assert set(expunge.__all__) <= words, set(expunge.__all__) - words


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [path.name[:5] for path in DECISIONS]
    assert numbers == [f"{i:04d}-" for i in range(1, len(DECISIONS) + 1)]


def test_index_lists_decisions_by_their_titles() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", index, re.M)
    titles = [path.read_text().splitlines()[0] for path in DECISIONS]
    assert [f"# {title}" for title, _ in listed] == titles
    assert [file for _, file in listed] == [path.name for path in DECISIONS]


@pytest.mark.parametrize("decision", DECISIONS, ids=name)
def test_decision_is_short_and_has_its_parts(decision: Path) -> None:
    text = decision.read_text()
    assert len(text.splitlines()) <= DECISION_LINES
    parts = re.findall(r"^## (\w+)", text, re.M)
    assert {"Context", "Decision", "Where"} <= set(parts)


@pytest.mark.parametrize("page", [PAPER, RADII], ids=name)
def test_paper_map_names_tests_that_exist(page: Path) -> None:
    rows = TEST_NAME.findall(page.read_text())
    missing = [(file, test) for file, test in rows if not exists(file, test)]
    assert rows
    assert not missing


def exists(file: str, test: str) -> bool:
    return (ROOT / file).is_file() and test in defined_tests(ROOT / file)


def test_every_theorem_names_a_test() -> None:
    """From one statement to the next, or at the end of its section, there is one."""
    text = RADII.read_text()
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        if re.search(r"^\*\*(?:Lemma|Theorem) \d", section, re.M):
            assert TEST_NAME.search(section), section.splitlines()[0]
    stated = re.findall(r"^\*\*(Lemma|Theorem) (\d+)", text, re.M)
    assert [int(number) for _, number in stated] == list(range(1, len(stated) + 1))
    table = text[text.index("## Where each statement") :]
    for kind, number in stated:
        if (kind, number) != ("Lemma", "4"):  # a step of Lemma 5
            assert re.search(rf"\b{number}\b", table), number


@pytest.mark.parametrize("page", [PAPER, RADII], ids=name)
def test_paper_map_names_functions_that_exist(page: Path) -> None:
    functions = PACKAGE_NAME.findall(page.read_text())
    assert functions
    for function in functions:
        pkgutil.resolve_name(function)


def docstrings(tree: ast.Module) -> list[ast.Constant]:
    """Return the docstrings of a module, its classes and functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, kinds) and ast.get_docstring(node) is not None
        if isinstance(node.body[0], ast.Expr)
    ]
    return [one for one in found if isinstance(one, ast.Constant)]


def spelled_words() -> set[str]:
    """Return every word that code and settings spell, docstrings left out."""
    words: set[str] = set()
    for file in ROOT.glob("*"):
        if file.is_file() and file.suffix != ".md":
            words.update(re.findall(r"\w+", file.read_text(errors="replace")))
    for folder in set(FOLDERS.split("|")) - {"docs"}:
        for file in (ROOT / folder).rglob("*"):
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            if file.suffix == ".py":
                # Only the package's are kept: others read them, too.
                own = folder == "src"
                tree = TREE.read(file) if own else ast.parse(file.read_text())
                words.update(named_in(tree))
            else:
                text = file.read_text(errors="replace")
                words.update(re.findall(r"\w+", text))
    return words


def named_in(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module spells, and the words of its texts."""
    own = set(map(id, docstrings(tree)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in own:
                yield from re.findall(r"\w+", node.value)
            continue
        for _, value in ast.iter_fields(node):
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str):
                    yield from one.split(".")


def stale_names(text: str, words: set[str]) -> set[str]:
    """Return the names in backticks that nothing spells any more.

    A plain word in backticks may be a value or an option of something else; a name
    with an underscore is one of ours.
    """
    return {
        name
        for name in NAME.findall(text.replace("``", "`"))
        if "_" in name and name.rpartition(".")[2] not in words
        if name not in FOREIGN and name not in BEGINNINGS
    }


def test_names_and_files_in_documents_and_docstrings_exist() -> None:
    words = spelled_words()
    # What decisions name is looked up below: they also name what others spell.
    pages = [page for page in PAGES if page not in DECISIONS]
    texts = {name(page): FENCED.sub("", page.read_text()) for page in pages}
    for file in sorted((ROOT / "src").rglob("*.py")):
        own = docstrings(TREE.read(file))
        texts[name(file)] = "\n".join(str(one.value) for one in own)
    stale = {
        place: found for place in texts if (found := stale_names(texts[place], words))
    }
    assert not stale
    missing = {
        (place, file)
        for place, text in texts.items()
        for file in FILE.findall(text)
        if not (ROOT / file).exists()
    }
    assert not missing


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name)
def test_paths_names_and_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    assert sorted(stale(TREE, page, text)) == []
    assert sorted(broken_links(page, text)) == []


@pytest.mark.parametrize(
    "token",
    [
        "radius/kinds.py",
        "linalg/prox.py",
        "solvers/",
        "tests/test_nothing.py",
        "test_nothing.py",
        "private_model/answers.py::remove_rows",
        "removal/mechanisms.py::Newton.nothing",
        "tests/test_docs.py::test_that_nobody_wrote",
        "bounds.LIFTED",
        "promise.radius.third_order",
        "expunge.unlearn",
        "expunge.promise.radius.nothing",
        "Labels.current",
        "Budget.nothing(1)",
        "linalg.kink_masses",
    ],
)
def test_what_is_gone_is_noticed(token: str) -> None:
    assert list(stale(TREE, ROOT / "docs/paper.md", f"see `{token}`"))
    assert not list(stale(TREE, ROOT / "docs/paper.md", f'see "{token}"'))


@pytest.mark.parametrize(
    "token",
    [
        "promise/radius.py",
        "radius.py::growth",
        "docs/decisions/",
        "tests/test_service_*.py",
        "tests/test_docs.py::test_what_is_there_is_found",
        "promise.radius.growth",
        "expunge.promise.radius.growth",
        "expunge.registry.rebuild_journal(folder)",
        "Budget.grid",
        "Newton.update",
        "rounding.LIFTED",
        "registry.models.refit",
    ],
)
def test_what_is_there_is_found(token: str) -> None:
    assert not list(stale(TREE, ROOT / "docs/paper.md", f"see `{token}`"))


def test_broken_link_is_noticed() -> None:
    page = ROOT / "docs/paper.md"
    good = "[a](radii.md#local-growth) [b](radii.md) [c](#errata) [d](https://x.org)"
    assert not list(broken_links(page, good))
    bad = ["nothing.md", "radii.md#nothing", "#nothing"]
    assert list(broken_links(page, " ".join(f"[x]({each})" for each in bad))) == bad


def test_stale_name_is_noticed() -> None:
    words = {"suggest_budget", "radius"}
    assert not stale_names("`suggest_budget(X)` and ``radius``", words)
    text = "`forget_nobody`, ``promise.forget_nobody``, `forget_nobody(1)`"
    assert stale_names(text, words) == {"forget_nobody", "promise.forget_nobody"}


def test_newest_changes_are_those_of_this_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert re.search(rf"\b{re.escape(expunge.__version__)}\b", headings[0])


def test_blocks_keep_the_line_numbers_of_their_page() -> None:
    block = python_blocks("# Title\n\n```python\n1 / 0\n```\n```text\nno\n```\n")
    assert block == ["\n\n\n1 / 0\n"]


def test_missing_test_is_noticed() -> None:
    assert exists("tests/test_docs.py", "test_missing_test_is_noticed")
    assert not exists("tests/test_docs.py", "test_that_nobody_wrote")
    assert not exists("tests/test_nothing.py", "test_missing_test_is_noticed")
