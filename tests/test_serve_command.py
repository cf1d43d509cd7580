# SPDX-License-Identifier: Apache-2.0
"""``expunge serve`` as operators run it: it starts, is refused, drains and ends."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import sleep
from typing import IO, Any

import pytest

from expunge.cli.output import DATA_MISSING, DONE, WRONG_INPUT
from expunge.client import Client
from expunge.registry import Registry
from expunge.service.app import listen
from tests.calling import Done, call
from tests.services import Process, wait_until_ready

from .registries import registry_at

SERVING = re.compile(r"serving at (http://127\.0\.0\.1:\d+); Ctrl-C stops it\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("served") / "registry"
    registry_at(found).close()
    return found


@contextmanager
def started(*words: object) -> Iterator[subprocess.Popen[str]]:
    """Run the command, and kill it if it does not end by itself."""
    line = [sys.executable, "-m", "expunge", "serve", *map(str, words)]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_log(stream: IO[str] | None) -> dict[str, Any]:
    """Return the next line of a log."""
    assert stream is not None
    line: dict[str, Any] = json.loads(stream.readline())
    return line


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Tell a service to end, and return what it printed since."""
    process.send_signal(signal.SIGTERM)
    printed = process.communicate(timeout=30)
    assert process.returncode == DONE, printed
    return printed


class TestStart:
    def test_dev_prints_an_address_and_a_token_once(self, folder: Path) -> None:
        with started(folder, "--dev", "--port", 0) as process:
            assert process.stdout is not None and process.stderr is not None
            found = SERVING.fullmatch(process.stderr.readline())
            assert found is not None
            token = process.stdout.readline().strip()
            client = Client(found[1], token)
            assert client.get("/status")["store"] == "sqlite"
            assert len(client.get("/tokens")["tokens"]) == 1
            out, err = end(process)
        assert token.startswith("expunge_")
        assert token not in out + err and out == ""

    def test_demo_serves_an_example_that_is_kept(self, tmp_path: Path) -> None:
        seen = []
        for time in range(2):
            words = "--demo", tmp_path / "demo", "--port", 0, "--window", 86400
            with started(*words) as process:
                assert process.stdout is not None and process.stderr is not None
                if time == 0:
                    assert "making an example" in process.stderr.readline()
                found = SERVING.fullmatch(process.stderr.readline())
                assert found is not None
                client = Client(found[1], process.stdout.readline().strip())
                seen.append({one["id"]: one["state"] for one in client.requests()})
                end(process)
        first, second = seen
        assert first.items() < second.items() and len(second) == len(first) + 1
        assert set(first.values()) == {
            "pending",
            "in_progress",
            "completed",
            "cancelled",
        }

    def test_answers_do_not_wait_for_acknowledgements(self) -> None:
        with listen("127.0.0.1", 0) as listener:
            with socket.create_connection(listener.getsockname()):
                accepted, _ = listener.accept()
                with accepted:
                    no_delay = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
                    assert accepted.getsockopt(*no_delay)


class TestEnd:
    def test_it_ends_when_told_and_answers_a_call_in_flight(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            _, token = registry.access.create("desk", ["request"])
        body = json.dumps({"people": [{"id": "person 3"}]}).encode()
        with started(folder, "--port", 0) as process:
            line = read_log(process.stderr)
            assert line["event"] == "starting" and line["window"] == 900
            port = line["port"]
            where = f"http://127.0.0.1:{port}"
            wait_until_ready(Process(process, where))  # type: ignore[arg-type]
            sent = socket.create_connection(("127.0.0.1", port), timeout=30)
            head = (
                "POST /api/v1/requests HTTP/1.1\r\nHost: here\r\n"
                f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
            )
            sent.sendall(head.encode())
            assert sent.recv(100).startswith(b"HTTP/1.1 100")  # the call is at hand
            process.send_signal(signal.SIGTERM)
            wait_until_refused(port)
            sent.sendall(body)
            answer = b"".join(iter(lambda: sent.recv(4096), b""))
            sent.close()
            out, err = process.communicate(timeout=30)
        assert process.returncode == DONE, err
        assert out == "" and json.loads(err.splitlines()[-1])["event"] == "ended"
        assert answer.startswith(b"HTTP/1.1 201")
        found = json.loads(answer.partition(b"\r\n\r\n")[2])
        with Registry.open(folder) as registry:
            assert registry.requests.status(found["id"]).stage == "accepted"


def wait_until_refused(port: int) -> None:
    """Return when nobody listens at a port any more."""
    while True:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        except OSError:
            return
        finally:
            connection.close()
        sleep(0.02)  # it logs each call to a pipe that nobody reads now


class TestRefusals:
    def refused(self, *words: object) -> Done:
        """Return a call of the command that ends by itself, in one line."""
        done = call("serve", *map(str, words))
        assert len(done.err.splitlines()) == 1 and not done.out
        return done

    def test_missing_registry(self, tmp_path: Path) -> None:
        done = self.refused(tmp_path / "nothing", "--port", "0")
        assert done.code == DATA_MISSING
        assert "holds no registry; run expunge init" in done.err

    def test_no_registry_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("EXPUNGE_REGISTRY", raising=False)
        done = self.refused("--port", "0")
        assert done.code == WRONG_INPUT
        assert "no registry was named; give its folder" in done.err

    def test_port_in_use(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = self.refused(folder, "--port", port)
        assert done.code == WRONG_INPUT
        assert f"cannot listen on 127.0.0.1 port {port} (Address already" in done.err

    def test_a_demo_is_not_made_for_a_port_in_use(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            done = self.refused("--demo", tmp_path / "demo", "--port", port)
        assert done.code == WRONG_INPUT
        assert not (tmp_path / "demo").exists()

    @pytest.mark.parametrize("option", [["--dev"], ["--demo", "nowhere"]])
    def test_no_https_for_others(self, folder: Path, option: list[str]) -> None:
        done = self.refused(folder, *option, "--host", "0.0.0.0")
        assert done.code == WRONG_INPUT
        assert "--host 0.0.0.0 with --dev or --demo" in done.err
        assert not Path("nowhere").exists()

    def test_demo_in_a_folder_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("")
        done = self.refused("--demo", tmp_path, "--port", "0")
        assert done.code == WRONG_INPUT
        assert "is in use for something else" in done.err

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("windows = 60", "unknown key 'windows'; the keys are window,"),
            ("window = 7", "a window of 7 seconds; give a number that divides a day"),
            ("window = '900'", "{path}: window is '900'; give a whole number"),
            ("window = true", "{path}: window is True; give a whole number"),
            ("rate = 0", "rate=0; give at least 1"),
            ("callback_hosts = ['a', 1]", "callback_hosts.1 is 1; give a text"),
            ("callback_hosts = 'a'", "callback_hosts is 'a'; give a list"),
            (
                "callback_ports = ['443']",
                "callback_ports.0 is '443'; give a whole number",
            ),
            ("is_secure = 1", "is 1; give true or false"),
            ("oidc = 1", "oidc is 1; give a table"),
            ("[opendsr]\ndomain = 'a'", "opendsr.certificate is missing"),
            (
                "[oidc]\nissuer = 'a'\nclient_id = 'b'\nsecret = 'c'",
                "key 'oidc.secret'; the keys are issuer,",
            ),
            ("[oidc]\nissuer = 1\nclient_id = 'b'", "oidc.issuer is 1; give a text"),
            (
                "[oidc]\nissuer = 'a'\nclient_id = 'b'\nscopes = {a = 'b'}",
                "oidc.scopes.a is 'b'; give a list",
            ),
            ("window", "is not TOML"),
        ],
    )
    def test_wrong_settings(
        self, folder: Path, tmp_path: Path, text: str, said: str
    ) -> None:
        path = tmp_path / "service.toml"
        path.write_text(text)
        done = self.refused(folder, "--config", path, "--port", "0")
        assert done.code == WRONG_INPUT
        assert said.format(path=path) in done.err

    def test_missing_settings(self, folder: Path, tmp_path: Path) -> None:
        done = self.refused(folder, "--config", tmp_path / "no.toml", "--port", "0")
        assert done.code == DATA_MISSING
