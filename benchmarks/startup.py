# SPDX-License-Identifier: Apache-2.0
"""How long commands take to start, and how far a reader walks to follow one.

Each command is a process of its own on a small registry, in turns with a process that
imports NumPy, scipy.linalg and SQLAlchemy and does nothing. ``serve`` is timed until it
says that it is ready, and so is a service of FastAPI and uvicorn that does nothing.

A walk is traced: which modules of the package a call enters, in the order in which its
functions are first called. Going back to a module that was already left counts as a
return.
"""

import contextlib
import io
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from types import CodeType, FrameType
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
from fastapi.testclient import TestClient

import expunge
from expunge import Budget, LogisticRegression
from expunge.cli import main
from expunge.registry import Registry
from expunge.service.app import create_app
from expunge.service.settings import ServiceSettings

from .registry import registry_of
from .report import Section, Table, Target, timings_table
from .timing import take_turns

BARE = "import numpy, scipy.linalg, sqlalchemy"
COMMAND = "from expunge.cli import main; main()"
BARE_NAME = "bare service"
BARE_SERVICE = """
import socket, sys
import fastapi, sqlalchemy, uvicorn
app = fastapi.FastAPI()
app.add_api_route("/readyz", lambda: "ready")
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
uvicorn.Server(uvicorn.Config(app, log_config=None)).run(sockets=[listener])
"""
PEOPLE, D, REPEATS, MOST, MOST_OF_SERVICE = 200, 4, 7, 3.0, 3.5
PAUSE = 0.005  # seconds between looks at a service that starts
PACKAGE = str(Path(expunge.__file__).parent)


def start_ups(folder: Path) -> Section:
    """Return how long commands take, against importing what none can do without."""
    home = folder / "registry"
    registry_of(home, PEOPLE, D).close()
    people = count()
    python, service = partial(run_python, folder), partial(run_service, folder)

    def command(*words: str) -> None:
        python(COMMAND, *words, "--registry", str(home))

    with Registry.open(home) as registry:
        receipt = registry.forget([str(next(people))])
    (folder / "receipt.json").write_text(receipt)
    key = str(home / "public.pem")
    actions = {
        "bare imports": lambda: python(BARE),
        "status": lambda: command("status"),
        "log": lambda: command("log"),
        "verify": lambda: python(COMMAND, "verify", "receipt.json", "--key", key),
        "forget": lambda: command("forget", str(next(people))),
        "release": lambda: command("release", "model", "--to", "m.safetensors"),
        BARE_NAME: lambda: service(BARE_SERVICE),
        "serve": lambda: service(COMMAND, "serve", str(home)),
    }
    times = take_turns(actions, REPEATS)
    bare = times["bare imports"]
    return Section(
        "Start-up of commands",
        [timings_table(times.values(), "ms")],
        [
            Target(f"{name} over bare imports", taken.over(bare), high=MOST)
            for name, taken in times.items()
            if name not in (bare.name, BARE_NAME)
        ]
        + [
            Target(
                f"serve over {BARE_NAME}",
                times["serve"].over(times[BARE_NAME]),
                high=MOST_OF_SERVICE,
            )
        ],
    )


def run_python(folder: Path, code: str, *words: str) -> None:
    """Run some code in a process of its own, to its end."""
    subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env=make_environment(),
        capture_output=True,
        check=True,
    )


def run_service(folder: Path, code: str, *words: str) -> None:
    """Run the code of a service in a process of its own, until it is ready."""
    port = find_port()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--port", str(port)],
        cwd=folder,
        env=make_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_ready(port, process)
    finally:
        process.kill()  # at once: the clock still runs
        process.wait()


def make_environment() -> dict[str, str]:
    """Return the environment in which processes import this package."""
    return os.environ | {"PYTHONPATH": str(Path(PACKAGE).parent)}


def find_port() -> int:
    """Return a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a service says that it is ready."""
    while process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10.0):
                return
        except URLError:  # not yet
            time.sleep(PAUSE)
    raise RuntimeError(f"the service ended with code {process.returncode}")


def walks(folder: Path) -> Section:
    """Return how many modules a reader enters, and how often they return to one."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((PEOPLE, D)) / np.sqrt(D)
    y = (X[:, 0] > 0.1 * rng.standard_normal(PEOPLE)).astype(int)
    model = LogisticRegression(alpha=1e-2, budget=Budget(sigma=0.5))
    home = folder / "walked"
    registry_of(home, PEOPLE, D).close()
    rows = [
        ("fit", *trace(lambda: model.fit(X, y, subjects=range(PEOPLE)))),
        ("forget", *trace(lambda: model.forget([2]))),
        ("expunge forget ID", *trace(lambda: _call("forget", "6", "--registry", home))),
        ("POST to receipt", *trace(_post, within=_serving(home))),
    ]
    header = ("walk", "modules", "lines in them", "changes", "returns")
    return Section("Walks through the code", [Table(header, rows)])


def trace(
    call: Callable[..., object],
    *,
    within: contextlib.AbstractContextManager[object] | None = None,
) -> tuple[str, ...]:
    """Return modules entered, their lines, changes of module and returns.

    Threads are traced that begin within the call, or in a context that it is given. How
    their functions follow one another is a matter of chance.
    """
    path: list[str] = []
    seen: set[CodeType] = set()

    def enter(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in seen or not code.co_filename.startswith(PACKAGE):
            return
        seen.add(code)
        if not path or path[-1] != code.co_filename:
            path.append(code.co_filename)

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        if within is None:
            call()
        else:
            with within as given:
                path.clear()
                seen.clear()
                call(given)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    left: set[str] = set()
    returns = 0
    for here, there in pairwise(path):
        left.add(here)
        returns += there in left
    lines = sum(len(Path(module).read_text().splitlines()) for module in set(path))
    figures = (len(set(path)), lines, len(path) - 1, returns)
    return tuple(f"{figure:,}" for figure in figures)


@contextlib.contextmanager
def _serving(home: Path) -> Iterator[TestClient]:
    """Serve a registry in this process, in windows of a second, to one sender."""
    with Registry.open(home) as registry:
        _, secret = registry.access.create("desk", ["request"])
        app = create_app(registry, ServiceSettings(window=1, is_secure=False))
        with (
            contextlib.redirect_stdout(io.StringIO()),
            TestClient(app, headers={"Authorization": f"Bearer {secret}"}) as http,
        ):
            yield http


def _post(http: TestClient) -> None:
    """Send a request, and wait for its receipt."""
    sent = http.post("/api/v1/requests", json={"people": [{"id": "7"}]})
    path = sent.headers["Location"] + "/receipt"
    while http.get(path).status_code != 200:
        time.sleep(PAUSE)


def _call(*words: object) -> None:
    """Run a command in this process, quietly."""
    before = sys.argv
    sys.argv = ["expunge", *map(str, words)]
    quiet = io.StringIO()
    try:
        with (
            contextlib.suppress(SystemExit),
            contextlib.redirect_stdout(quiet),
            contextlib.redirect_stderr(quiet),
        ):
            main()
    finally:
        sys.argv = before


def run(data_dir: Path | None) -> Iterator[Section]:
    """Yield both sections; no data is needed."""
    del data_dir
    with tempfile.TemporaryDirectory() as folder:
        yield start_ups(Path(folder))
        yield walks(Path(folder))
