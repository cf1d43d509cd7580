# SPDX-License-Identifier: Apache-2.0
"""What documents name, resolved: files, folders, links, modules, classes and members.

Nothing is imported: definitions are read from the source, so that a page can be checked
without what the modules behind it need.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

CODE = re.compile(r"`([^`\n]+)`")
TOCTREE = re.compile(r"^```{toctree}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
KINDS = "py|pyi|md|json|toml|txt|js|j2|sql|svg|png|yaml|html"
PATH = re.compile(rf"[\w.*-]+(?:/[\w.*-]+)*/?(?:\.(?:{KINDS}))?")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
PLACES = ("", "src/expunge", "src", "tests", "docs", "docs/decisions")


@dataclass(frozen=True)
class Tree:
    """A repository: its files, and what its Python defines."""

    root: Path
    folders: tuple[str, ...] = (
        "src",
        "tests",
        "benchmarks",
        "examples",
        "connectors",
        "deploy",
        "docs",
    )
    _trees: dict[Path, ast.Module] = field(default_factory=dict)

    def read(self, file: Path) -> ast.Module:
        """Return a module's syntax tree."""
        if file not in self._trees:
            self._trees[file] = ast.parse(file.read_text())
        return self._trees[file]

    @cached_property
    def files(self) -> list[Path]:
        """Every file of the folders, and those beside them."""
        found = [each for each in self.root.iterdir() if each.is_file()]
        for name in self.folders:
            below = (self.root / name).rglob("*")
            found += [each for each in below if "__pycache__" not in each.parts]
        return found

    @cached_property
    def modules(self) -> dict[str, list[Path]]:
        """Modules of the package by their last name; a package by its folder's."""
        found: dict[str, list[Path]] = {}
        for file in (self.root / "src").rglob("*.py"):
            own = file.parent if file.name == "__init__.py" else file
            found.setdefault(own.stem, []).append(file)
        return found

    @cached_property
    def classes(self) -> dict[str, set[str]]:
        """Classes of the package, each with its members and those of its bases."""
        own: dict[str, set[str]] = {}
        bases: dict[str, set[str]] = {}
        for files in self.modules.values():
            for file in files:
                for node in ast.walk(self.read(file)):
                    if isinstance(node, ast.ClassDef):
                        own.setdefault(node.name, set()).update(members(node))
                        names = {ast.unparse(base) for base in node.bases}
                        names = {each.split("[")[0].split(".")[-1] for each in names}
                        bases.setdefault(node.name, set()).update(names)
        for _ in range(6):  # no class has more ancestors
            for name, above in bases.items():
                for base in above & own.keys():
                    own[name] |= own[base]
        return own

    @cached_property
    def members(self) -> set[str]:
        """The members of any class."""
        return set().union(*self.classes.values())

    @cached_property
    def definitions(self) -> set[str]:
        """What any module of the package defines."""
        files = [file for each in self.modules.values() for file in each]
        bodies = [node for file in files for node in self.read(file).body]
        return {name for node in bodies for name in defined(node)}

    def defines(self, file: Path, name: str) -> bool:
        """Whether a file defines a name, ``Class::member`` or ``Class.member``."""
        if file.is_dir():
            file = file / "__init__.py"
        if not file.is_file() or file.suffix not in (".py", ".pyi"):
            return False
        first, *rest = re.split(r"::|\.", name)
        for node in self.read(file).body:
            if first in defined(node):
                if not rest:
                    return True
                if isinstance(node, ast.ClassDef):
                    inherited = self.classes.get(first, set())
                    return rest[0] in members(node) | inherited
        return False

    def find(self, path: str, page: Path) -> list[Path]:
        """Return the files and folders that a page may mean by this path."""
        bases = [page.parent, *(self.root / place for place in PLACES)]
        for base in bases:
            found = sorted(base.glob(path.rstrip("/"))) if path else []
            if found:
                return found
        if "/" in path.rstrip("/"):  # from somewhere inside the package, or beside it
            return [each for each in self.files if f"/{path}" in each.as_posix()]
        return [each for each in self.files if each.match(path)]

    def spells(self, path: str) -> bool:
        """Whether code writes or reads a file of this name, which no tree holds."""
        name = path.strip("/").rpartition("/")[2]
        if path.endswith("/"):
            return f'"{name}"' in self.texts
        whole = rf"(?<![\w.]){re.escape(name)}(?!\w)"
        return not name.endswith(".py") and bool(re.search(whole, self.texts))

    @cached_property
    def texts(self) -> str:
        """Every file that is no page, one after another."""
        tests = self.root / "tests"  # they name what must not be there
        plain = [
            each for each in self.files if each.is_file() and tests not in each.parents
        ]
        kinds = {".py", ".toml", ".yaml", ".txt", ".j2", ".js", ".html", ""}
        return "\n".join(
            each.read_text(errors="replace") for each in plain if each.suffix in kinds
        )

    def resolves(self, name: str) -> bool:
        """Whether a dotted name is none of ours, or leads to what is defined."""
        parts = name.split(".")
        if parts[0] == "expunge":
            return self._leads(parts[1:])
        if parts[0][:1].isupper():
            return parts[0] not in self.classes or parts[1] in self.classes[parts[0]]
        if parts[0] not in self.modules:  # but its end may be ours, and have moved
            return not (parts[-1].isupper() and parts[-1] in self.definitions)
        # A variable often has the name of a module: `registry.models.refit`.
        return self._leads(parts) or parts[-1] in self.members or self.spells(name)

    def _leads(self, parts: list[str]) -> bool:
        """Whether names lead from package to module to definition to member."""
        if not parts:
            return True
        starts = [self.root / "src/expunge"]
        for file in self.modules.get(parts[0], []):
            own = file.parent if file.name == "__init__.py" else file
            starts.append(own.parent)
        return any(self._leads_from(start, parts) for start in starts)

    def _leads_from(self, folder: Path, parts: list[str]) -> bool:
        for place, part in enumerate(parts):
            if (folder / part).is_dir():
                folder = folder / part
                continue
            module = (folder / part).with_suffix(".py")
            rest = parts[place + 1 :] if module.is_file() else parts[place:]
            file = module if module.is_file() else folder / "__init__.py"
            stub = file.with_suffix(".pyi")
            files = [each for each in (file, stub) if each.is_file()]
            return not rest or any(
                self.defines(each, ".".join(rest)) or rest[0] in imported(self, each)
                for each in files
            )
        return True


def imported(tree: Tree, file: Path) -> set[str]:
    """Return the names that a file imports from elsewhere and offers."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree.read(file))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module or class defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            for each in ast.walk(target):
                if isinstance(each, ast.Name):
                    yield each.id
    elif isinstance(node, ast.If | ast.Try):
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.stmt):
                yield from defined(each)


def members(node: ast.ClassDef) -> set[str]:
    """Return the members of a class, with what its methods set on ``self``."""
    found = {name for each in node.body for name in defined(each)}
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            found.add(each.attr)
    return found


def stale(tree: Tree, page: Path, text: str) -> Iterator[str]:
    """Yield what a page names in backticks that leads nowhere."""
    files: list[Path] = []
    examples = "\n".join(FENCED.findall(text))
    for token in CODE.findall(FENCED.sub("", text)):
        name = re.split(r"[(\s]", token)[0]
        path, _, inner = name.partition("::")
        if inner or is_path(path):
            # `file.py::one` and `::another`
            files = tree.find(path, page) if path else files
            if not files and not tree.spells(path) and path not in examples:
                yield token
            elif inner and not any(tree.defines(file, inner) for file in files):
                yield token
        elif DOTTED.fullmatch(name) and not tree.resolves(name):
            if name not in examples:
                yield token


def is_path(token: str) -> bool:
    """Whether a token is spelled like a file or folder of a repository."""
    if not PATH.fullmatch(token) or token.startswith(("/", ".", "*")):
        return False
    return token.endswith("/") or bool(re.search(rf"\.({KINDS})$", token))


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Yield the links of a page that lead to no file, or to no heading of one."""
    for target in LINK.findall(FENCED.sub("", text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            yield target
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            yield target


def anchors(file: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub spells them."""
    plain = FENCED.sub("", file.read_text())
    found: set[str] = set()
    for heading in HEADING.findall(plain):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        number = sum(each.rpartition("-")[0] == slug for each in found)
        found.add(f"{slug}-{number + 1}" if slug in found else slug)
    return found


def listed(page: Path) -> Iterator[Path]:
    """Yield the pages that the toctrees of a page name."""
    for block in TOCTREE.finditer(page.read_text()):
        for line in block[1].splitlines():
            if line and not line.startswith(":"):
                name = line[line.index("<") + 1 : -1] if "<" in line else line
                yield from page.parent.glob(f"{name}.md")
