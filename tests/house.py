# SPDX-License-Identifier: Apache-2.0
"""The rules of the house, each a pure function from a file to its complaints.

``test_house`` holds every file of the project against them and proves that each
can fail. A new module is welcomed by adding its name to ``LAYERS``, in the
layer it belongs to and after every module it imports. Nothing here counts lines,
parameters or modules: a module is one idea, whatever its length.
"""

import ast
import graphlib
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

LAYERS = {
    "ground": "exceptions disk display rights",
    "mathematics": "core gpu engines removal promise",
    "secrets": "private_model",
    "models": "preprocessing audit selection files long linear_model plan adopt tables",
    "record": "ledger registry",
    "outside": "demo drop letters evidence reports client service cli __main__",
}
HEIGHT = {part: i for i, part in enumerate(" ".join(LAYERS.values()).split())}

POSITIONAL = 2
DATA = ("X", "y")
# scikit-learn takes a second to import: only what offers its interface may need it. The
# demo retrains with it, as an oracle that is not ours.
SKLEARN = ("linear_model", "preprocessing", "adopt", "tables", "demo")
# Methods whose signatures scikit-learn fixes.
SKLEARN_METHODS = ("fit", "partial_fit", "score", "transform", "fit_transform")

# Parts that the rest does without: whoever is asked for one imports it then.
APART = (
    "expunge.drop",
    "expunge.evidence",
    "expunge.files.onnx",
    "expunge.letters",
    "expunge.registry.lake",
    "expunge.reports",
    "expunge.service.oidc",
    "expunge.service.opendsr",
)

# Where chance could come from; noise is drawn in one module and nowhere else.
SAMPLERS = re.compile(
    r"(random|secrets|opendp|numpy\.random|os\.urandom"
    r"|sklearn\.utils\.check_random_state)(\.|$)"
)
DRAWS = re.compile(r"(np|numpy)\.random\.\w+$|os\.urandom$|.+\.rvs$")
GENERATOR_TYPES = re.compile(r"(np|numpy)\.random\.(Generator|RandomState)$")

MACHINE_PATHS = re.compile(r"(?<![\w.~}-])/(work|tmp|root|home|opt|Users)/")
ADDRESSES = re.compile(r"https?:|file:|--find-links|--(extra-)?index-url")

# Who in tests may know what is inside expunge.registry, and which of its modules. All
# others say what they want by tests.registries, and outlive what a registry is made of.
INSIDERS: Mapping[str, tuple[str, ...]] = {
    "tests/registries/": ("",),  # so that the others need not
    # They break or replace functions inside it, to see that a harness complains.
    "tests/crash/sabotage.py": ("",),
    "tests/attack/registry_mutants.py": ("",),
    "tests/house.py": ("lake",),  # which stands apart, see ``APART``
    # They test a module inside it for its own sake, or lend what it works on.
    "tests/stores.py": ("storage",),
    "tests/test_deliveries.py": ("deliveries", "web_address"),
    "tests/test_lake_rewrite.py": ("lake",),
    "tests/test_listing.py": ("request", "requests", "storage"),
    "tests/test_log.py": ("log", "storage"),
    "tests/test_look_ups.py": ("request", "storage"),
    "tests/test_outbound_policy.py": ("web_address",),
    "tests/test_registry_sparse.py": ("loaded_model",),
    "tests/test_sessions.py": ("storage",),
    "tests/test_standing.py": ("changes", "settle", "storage"),
    "tests/test_stores.py": ("storage",),
    "tests/test_stores_tables.py": ("recovery", "request", "storage"),
}
# Functions of expunge.registry that anybody may import, beside its public classes.
PUBLIC_FUNCTIONS = ("rebuild_journal",)
INSIDE = re.compile(r"expunge\.registry\.(\w+)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file of the project: its place below the root, and its text."""

    path: PurePosixPath
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree, for Python files."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree: each rule looks at them, and walking takes longer."""
        return list(ast.walk(self.tree))

    @cached_property
    def module(self) -> str:
        """The dotted name under which Python imports the file."""
        parts = [part for part in self.path.with_suffix("").parts if part != "src"]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def part(self) -> str:
        """The module's name in ``LAYERS``; empty for the package itself."""
        return self.module.partition(".")[2].partition(".")[0]

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones included."""
        for node in self.nodes:
            if isinstance(node, Function):
                yield node

    def imports(self) -> Iterator[tuple[int, str]]:
        """Each imported name in full, with its line."""
        package = self.module.split(".")
        if self.path.name != "__init__.py":
            package.pop()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) + 1 - node.level] if node.level else []
                base = [*above, node.module] if node.module else above
                for alias in node.names:
                    yield node.lineno, ".".join([*base, alias.name])

    def at(self, line: int, complaint: str) -> str:
        """Return the complaint with the place it is about."""
        return f"{self.path}:{line}: {complaint}"


Rule = Callable[[Source], Iterator[str]]
PackageRule = Callable[[Sequence[Source]], Iterator[str]]


def known(source: Source) -> Iterator[str]:
    """Every module of the package has a layer."""
    if source.part and source.part not in HEIGHT:
        yield source.at(
            1, f"{source.part} has no layer; add it to LAYERS in tests/house.py"
        )


def downward(source: Source) -> Iterator[str]:
    """A module imports from layers above it, or earlier in its own."""
    if not source.part:
        return
    height = HEIGHT.get(source.part, len(HEIGHT))
    for line, name in source.imports():
        package, part, *_ = [*name.split("."), ""]
        if package != "expunge" or part == source.part:
            continue
        if HEIGHT.get(part, len(HEIGHT)) >= height:
            yield source.at(line, f"imports {name}, not above it in tests/house.py")


def documented(source: Source) -> Iterator[str]:
    """A module says why it exists."""
    if ast.get_docstring(source.tree) is None:
        yield source.at(1, "no module docstring")


def named(source: Source) -> Iterator[str]:
    """A function takes two parameters by position, beside data; the rest by name."""
    for function in source.functions():
        name, given = function.name, function.args
        if name.startswith("__") or name in SKLEARN_METHODS:
            continue
        positional = [
            arg.arg
            for arg in (*given.posonlyargs, *given.args)
            if arg.arg not in ("self", "cls", "_", *DATA)
        ]
        if len(positional) > POSITIONAL:
            rest = ", ".join(positional[POSITIONAL:])
            yield source.at(function.lineno, f"{name}: take {rest} by name")


def light(source: Source) -> Iterator[str]:
    """Only what offers scikit-learn's interface imports scikit-learn."""
    for line, name in source.imports():
        if name.partition(".")[0] == "sklearn" and source.part not in SKLEARN:
            yield source.at(line, f"imports {name}")


def apart(source: Source) -> Iterator[str]:
    """What stands apart is imported inside a function, or for its types alone."""
    later: set[int] = set()
    for node in source.nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
            continue
        if isinstance(node, ast.If | Function):
            later.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for line, name in source.imports():
        of = [part for part in APART if f"{name}.".startswith(f"{part}.")]
        is_inside = any(f"{source.module}.".startswith(f"{part}.") for part in of)
        if of and not is_inside and line not in later:
            yield source.at(line, f"imports {name}, which stands apart")


def annotated(source: Source) -> Iterator[str]:
    """A function states the types it takes and returns."""
    for function in source.functions():
        bare = [p.arg for p in _parameters(function) if p.annotation is None]
        if function.returns is None:
            bare.append("the result")
        if bare:
            yield source.at(
                function.lineno, f"{function.name}: {', '.join(bare)} without a type"
            )


def quiet(source: Source) -> Iterator[str]:
    """Only the command line prints."""
    for node in source.nodes:
        if isinstance(node, ast.Name) and node.id == "print" and source.part != "cli":
            yield source.at(node.lineno, "print outside cli")


def deterministic(source: Source) -> Iterator[str]:
    """Only ``noise`` draws; elsewhere a generator may be named as a type."""
    if source.module == "expunge.promise.noise":
        return
    called = {id(n.func) for n in source.nodes if isinstance(n, ast.Call)}
    for line, name in source.imports():
        if SAMPLERS.match(name):
            yield source.at(line, f"imports {name}; noise alone may draw")
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and DRAWS.match(ast.unparse(node)):
            if id(node) in called or not GENERATOR_TYPES.match(ast.unparse(node)):
                yield source.at(node.lineno, f"uses {ast.unparse(node)}")


def ascii_named(source: Source) -> Iterator[str]:
    """Identifiers can be typed on any keyboard."""
    if source.text.isascii():
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.NAME and not token.string.isascii():
            yield source.at(token.start[0], f"{token.string} is not ASCII")


def listed(source: Source) -> Iterator[str]:
    """An ``__init__`` lists its public names."""
    if source.path.name != "__init__.py":
        return
    names = {n.id for n in source.nodes if isinstance(n, ast.Name)}
    if "__all__" not in names:
        yield source.at(1, "no __all__")


def portable(source: Source) -> Iterator[str]:
    """A file names no absolute path of somebody's machine."""
    for number, line in enumerate(source.text.splitlines(), start=1):
        if MACHINE_PATHS.search(line):
            yield source.at(number, "names an absolute path")


def addressless(source: Source) -> Iterator[str]:
    """Pinned requirements say what, never from where."""
    name = source.path.name
    if name in ("uv.lock", "pylock.toml"):
        yield source.at(1, "records addresses; commit requirements-dev.txt alone")
    if name.startswith("requirements") and ADDRESSES.search(source.text):
        yield source.at(1, "holds an address")


def outside(source: Source) -> Iterator[str]:
    """A test reaches into a registry by tests.registries alone; see ``INSIDERS``."""
    path = str(source.path)
    if not path.startswith("tests/"):
        return
    known = {
        part
        for place, parts in INSIDERS.items()
        if path.startswith(place)
        for part in parts
    }
    if "" in known:
        return
    lines = enumerate(source.text.splitlines(), start=1)
    named = [(at, name) for at, line in lines for name in INSIDE.findall(line)]
    for at, name in source.imports():
        if name.startswith("expunge.registry."):
            named.append((at, name.split(".")[2]))
        if name.startswith("tests.registries.") and name.count(".") > 2:
            yield source.at(at, f"imports {name}; import from tests.registries")
    for at, name in sorted({*named}):
        if name[0].islower() and name not in {*PUBLIC_FUNCTIONS, *known}:
            yield source.at(
                at, f"knows expunge.registry's {name}; use tests.registries"
            )
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "_context":
            yield source.at(node.lineno, "reaches into it; use tests.registries")


def cycles(package: Sequence[Source]) -> Iterator[str]:
    """No module of the package imports itself through others."""
    modules = {source.module for source in package if source.part}
    graph = {
        source.module: {
            target
            for _, name in source.imports()
            if (target := _nearest(name, modules)) is not None
        }
        for source in package
        if source.part
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield "import cycle: " + " <- ".join(error.args[1])


def twins(package: Sequence[Source]) -> Iterator[str]:
    """A class name has one home in the package."""
    homes: dict[str, list[str]] = {}
    for source in package:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(source.module)
    for name, modules in homes.items():
        if len(modules) > 1:
            yield f"{name} lives in {' and '.join(modules)}"


def trespasses(package: Sequence[Source]) -> Iterator[str]:
    """No package reaches for a private member of another one's objects."""
    owners: dict[str, set[str]] = {}
    for source in package:
        for name in _private_members(source):
            owners.setdefault(name, set()).add(source.part)
    for source in package:
        for node in source.nodes:
            if not isinstance(node, ast.Attribute) or _is_own(node):
                continue
            theirs = owners.get(node.attr, set())
            if theirs and source.part not in theirs:
                yield source.at(
                    node.lineno, f"{node.attr} is private to {', '.join(theirs)}"
                )
        for line, name in source.imports():
            part, word = name.split(".")[1:2], name.rpartition(".")[2]
            foreign = name.startswith("expunge.") and part != [source.part]
            if foreign and word.startswith("_") and not word.startswith("__"):
                yield source.at(line, f"imports {name}, which is private")


def _private_members(source: Source) -> Iterator[str]:
    """Yield the private attributes and methods that a module's classes define."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, Function) and _is_private(part.name):
                    yield part.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if _is_own(node) and _is_private(node.attr):
                yield node.attr


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _nearest(name: str, modules: set[str]) -> str | None:
    """Return the module that an imported name lives in, if it is one of ours."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def _parameters(function: Function) -> list[ast.arg]:
    """Return all parameters but ``self`` and ``cls``."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    spread = [arg for arg in (given.vararg, given.kwarg) if arg is not None]
    return [arg for arg in named + spread if arg.arg not in ("self", "cls")]
