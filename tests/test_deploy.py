# SPDX-License-Identifier: Apache-2.0
"""The files to deploy with: no root, nothing that moves, and settings that exist.

Images are not built here. What can be said of the files without that is checked.
"""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sqlalchemy import URL, make_url

from expunge.cli.app import build_command
from expunge.registry import Registry
from expunge.service.app import DRAIN
from expunge.service.settings import ServiceSettings, read_settings

from .postgres import create_database

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "deploy/expunge.service"
ALERTS, CADDYFILE = ROOT / "deploy/alerts.yml", ROOT / "deploy/Caddyfile"
IMAGE = re.compile(r"[a-z0-9./-]+:\d+\.\d+[\w.-]*")
# First the calls end, and then the threads beside them.
LONGEST_DRAIN = 2 * DRAIN


def read_dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each with what follows it."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def last(word: str) -> str:
    """Return what follows the last instruction of a kind."""
    return [rest for found, rest in read_dockerfile() if found == word][-1]


@pytest.fixture(scope="module")
def compose() -> Any:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def read_pins(path: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Return version and hashes of each pinned package."""
    text = "\n".join(
        line
        for line in path.read_text().splitlines()
        if not line.strip().startswith("#")
    ).replace("\\\n", " ")
    pins: dict[str, tuple[str, frozenset[str]]] = {}
    for line in text.splitlines():
        named, *hashes = line.split("--hash=")
        wanted = Requirement(named)
        found = frozenset(one.strip() for one in hashes)
        version = str(wanted.specifier)  # the marker says who asks for it, and where
        assert found and version.startswith("==")
        pins[canonicalize_name(wanted.name)] = version, found
    return pins


class TestDockerfile:
    def test_images_have_a_version(self) -> None:
        for word, rest in read_dockerfile():
            if word == "FROM":
                assert IMAGE.fullmatch(rest.split()[0]), rest
                assert "latest" not in rest

    def test_it_does_not_run_as_root(self) -> None:
        assert last("USER") == "10001:10001"
        words = [word for word, _ in read_dockerfile()]
        assert "RUN" not in words[words.index("USER") :]

    def test_nothing_is_fetched_but_pinned_packages(self) -> None:
        for word, rest in read_dockerfile():
            assert word != "ADD"
            assert not re.search("https?://(?!127)", rest), rest
            assert not re.search(r"\b(curl|wget|apt-get)\b", rest)
            if "pip install" in rest:
                assert "--require-hashes" in rest or "--no-deps" in rest

    def test_no_secret_is_in_it(self) -> None:
        for word, rest in read_dockerfile():
            assert word != "ARG"
            if word == "ENV":
                assert not re.search("(?i)password|secret|token", rest)

    def test_commands_are_lists_so_that_signals_arrive(self) -> None:
        words = json.loads(last("ENTRYPOINT")) + json.loads(last("CMD"))
        assert words[:2] == ["expunge", "serve"]
        assert set(words[2:]) - {"0.0.0.0"} <= options_of_serve()
        assert last("STOPSIGNAL") == "SIGTERM"
        check = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
        assert check[0] == "python" and "/readyz" in check[-1]

    def test_what_it_copies_exists_and_is_sent(self) -> None:
        sent = (ROOT / ".dockerignore").read_text().splitlines()
        for word, rest in read_dockerfile():
            if word == "COPY" and not rest.startswith("--from"):
                for name in rest.split()[:-1]:
                    assert (ROOT / name).exists(), name
                    assert f"!{name}" in sent, name
        assert "*" in sent


def options_of_serve() -> set[str]:
    """Return the options of the command."""
    return {word for option in build_command("serve").params for word in option.opts}


class TestRequirements:
    @pytest.mark.parametrize(
        "file", ["deploy/requirements.txt", "requirements-demo.txt"]
    )
    def test_they_are_those_that_are_tested(self, file: str) -> None:
        tested = read_pins(ROOT / "requirements-dev.txt")
        for name, pin in read_pins(ROOT / file).items():
            assert tested[name] == pin, name

    @pytest.mark.parametrize(
        ("file", "parts"),
        [
            ("deploy/requirements.txt", "service cli registry files onnx"),
            ("requirements-demo.txt", "cli registry files plots"),
        ],
    )
    def test_all_that_is_needed_is_in_them(self, file: str, parts: str) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"]
        wanted = [*project["dependencies"]]
        for extra in parts.split():
            wanted += extras[extra]
        pins = read_pins(ROOT / file)
        for one in map(Requirement, wanted):
            assert one.name == "expunge" or canonicalize_name(one.name) in pins, one


class TestCompose:
    def test_images_have_a_version(self, compose: Any) -> None:
        assert IMAGE.fullmatch(compose["services"]["database"]["image"])
        assert compose["services"]["database"]["image"].startswith("postgres:16.")
        assert compose["services"]["service"]["build"] == "."

    def test_secrets_are_files(self, compose: Any) -> None:
        text = (ROOT / "compose.yaml").read_text()
        assert not re.search(r"(?i)password: |://\w+:", text)
        for secret in compose["secrets"].values():
            assert set(secret) == {"file"}
            assert secret["file"].startswith("./deploy/secrets/")
        used = {one for part in compose["services"].values() for one in part["secrets"]}
        assert used == set(compose["secrets"])
        assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()

    def test_what_is_named_is_declared(self, compose: Any) -> None:
        for part in compose["services"].values():
            for volume in part["volumes"]:
                source = volume.partition(":")[0]
                if source.startswith("./"):
                    assert (ROOT / source).is_file() and volume.endswith(":ro")
                else:
                    assert source in compose["volumes"]
            assert set(part["networks"]) <= set(compose["networks"])
            assert part["healthcheck"]["test"][0] == "CMD"
            assert part["restart"] == "unless-stopped"
            assert "no-new-privileges:true" in part["security_opt"]
        waits = compose["services"]["service"]["depends_on"]
        assert waits == {"database": {"condition": "service_healthy"}}

    def test_the_service_can_do_little(self, compose: Any) -> None:
        service = compose["services"]["service"]
        assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
        assert service["user"] == last("USER") and service["tmpfs"] == ["/tmp"]
        assert all(one.startswith("127.0.0.1:") for one in service["ports"])
        assert int(service["stop_grace_period"].removesuffix("s")) > LONGEST_DRAIN
        options = {one for one in service["command"] if one.startswith("--")}
        assert options <= options_of_serve()

    def test_nobody_fills_memory_or_disk(self, compose: Any) -> None:
        for part in compose["services"].values():
            assert part["mem_limit"] == part["memswap_limit"]  # nothing is swapped
            assert part["ulimits"]["core"] == 0
            assert {"max-size", "max-file"} <= set(part["logging"]["options"])

    def test_the_database_is_reached_from_inside_alone(self, compose: Any) -> None:
        assert compose["services"]["database"]["networks"] == ["inside"]
        assert "ports" not in compose["services"]["database"]
        assert compose["networks"]["inside"] == {"internal": True}

    def test_its_settings_are_read(self) -> None:
        found = read_settings(ROOT / "deploy/service.toml")
        assert found == ServiceSettings(address="https://expunge.example.org")


def test_a_password_may_be_in_a_file(postgres_url: str, tmp_path: Path) -> None:
    url = make_url(create_database(postgres_url))
    passfile = tmp_path / "database-passfile"
    passfile.write_text(
        f"{url.host}:{url.port}:{url.database}:{url.username}:{url.password}\n"
    )
    passfile.chmod(0o600)
    bare = URL.create("postgresql", url.username, None, url.host, url.port)
    named = bare.set(database=url.database, query={"passfile": str(passfile)})
    store = named.render_as_string(hide_password=False)
    with Registry.create(tmp_path / "registry", url=store) as registry:
        assert registry.status().store == "postgresql"
    settings = (tmp_path / "registry/registry.json").read_text()
    assert "passfile=" in settings and str(url.password) not in settings


def read_unit() -> dict[str, str]:
    """Return the keys of the unit, the last of each."""
    lines = [line for line in UNIT.read_text().splitlines() if "=" in line]
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


class TestUnit:
    def test_it_runs_the_command_without_root(self) -> None:
        unit = read_unit()
        assert unit["User"] == "expunge" and unit["NoNewPrivileges"] == "yes"
        words = shlex.split(unit["ExecStart"])
        assert words[1:3] == ["serve", "/var/lib/expunge/registry"]
        assert {one for one in words if one.startswith("--")} <= options_of_serve()
        assert unit["ProtectSystem"] == "strict" and unit["StateDirectory"] == "expunge"
        assert unit["CapabilityBoundingSet"] == "" and unit["LimitCORE"] == "0"
        assert unit["Restart"] == "on-failure"

    def test_it_waits_for_what_is_at_hand(self) -> None:
        assert int(read_unit()["TimeoutStopSec"]) > LONGEST_DRAIN

    @pytest.mark.skipif(
        shutil.which("systemd-analyze") is None, reason="there is no systemd here"
    )
    def test_systemd_reads_it(self, tmp_path: Path) -> None:
        # The command need not be installed where the test runs.
        copy = tmp_path / UNIT.name
        there = str(shutil.which("true"))
        copy.write_text(UNIT.read_text().replace("/usr/local/bin/expunge", there))
        done = subprocess.run(
            ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True
        )
        about_it = [line for line in done.stderr.splitlines() if UNIT.name in line]
        assert done.returncode == 0 and not about_it, done.stderr
        # It may do little: systemd's own score, where 0 is nothing and 10 is all.
        limited = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=20", copy],
            capture_output=True,
            text=True,
        )
        assert limited.returncode == 0, limited.stdout[-200:] + limited.stderr


def test_the_proxy_lets_batches_through_and_logs_nothing() -> None:
    text = (ROOT / "deploy/Caddyfile").read_text()
    words = [line.strip() for line in text.splitlines()]
    assert text.count("{") == text.count("}")
    (limit,) = [line.split()[1] for line in words if line.startswith("max_size")]
    size = int(limit.removesuffix("MiB")) * 2**20
    assert size > ServiceSettings().largest_batch
    assert not [line for line in words if line.startswith(("log", "encode"))]
    assert "reverse_proxy 127.0.0.1:8300 {" in words
    assert "respond @inside 404" in words and "@inside path /metrics" in words


def ask_tool(tool: str, *words: str | Path) -> str:
    """Return what a tool says of a file of ours, or say that it was not asked."""
    if shutil.which(tool) is None:
        pytest.skip(f"NOT TESTED: there is no {tool}")
    done = subprocess.run([tool, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_caddy_reads_the_proxy() -> None:
    ask_tool("caddy", "validate", "--adapter", "caddyfile", "--config", CADDYFILE)


@pytest.fixture(scope="module")
def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


class TestAlerts:
    def test_prometheus_reads_them(self) -> None:
        ask_tool("promtool", "check", "rules", ALERTS)

    def test_each_has_a_runbook(self, rules: list[dict[str, Any]]) -> None:
        page = (ROOT / "docs/operations.md").read_text()
        described = re.findall(r"^### (Expunge\w+)$", page, re.M)
        assert [rule["alert"] for rule in rules] == described
        for rule in rules:
            anchor = rule["annotations"]["runbook"].partition("#")[2]
            assert anchor == rule["alert"].lower()
            assert rule["labels"]["severity"] in ("page", "ticket")

    def test_metrics_exist(self, rules: list[dict[str, Any]]) -> None:
        asked = " ".join(rule["expr"] for rule in rules)
        asked += (ROOT / "deploy/dashboard.json").read_text()
        made = (ROOT / "src/expunge/service/metrics.py").read_text()
        for name in set(re.findall(r"expunge_[a-z_]+", asked)):
            assert f'"{name.removesuffix("_bucket")}"' in made


def test_the_dashboard_shows_every_metric_and_asks_nobody_else() -> None:
    text = (ROOT / "deploy/dashboard.json").read_text()
    board = json.loads(text)
    made = (ROOT / "src/expunge/service/metrics.py").read_text()
    for name in re.findall(r'"(expunge_[a-z_]+)"', made):
        assert name in text
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) and "http" not in text


def test_kubernetes_runs_what_the_image_has() -> None:
    rendered = ask_tool("kubectl", "kustomize", ROOT / "deploy/kubernetes")
    parts = {
        (part["kind"], part["metadata"]["name"]): part
        for part in yaml.safe_load_all(rendered)
    }
    accepts, applies = (
        parts["Deployment", f"expunge-{name}"]["spec"]
        for name in ("accepting", "applying")
    )
    assert applies["replicas"] == 1 and applies["strategy"]["type"] == "Recreate"
    for spec in (accepts, applies):
        pod = spec["template"]["spec"]
        (main,) = pod["containers"]
        assert ("--accept-only" in main["args"]) == (spec is accepts)
        assert {
            one for one in main["args"] if one.startswith("--")
        } <= options_of_serve()
        assert str(pod["securityContext"]["runAsUser"]) == last("USER").split(":")[0]
        assert pod["terminationGracePeriodSeconds"] > LONGEST_DRAIN
        for container in (main, *pod["initContainers"]):
            limits = container["securityContext"]
            assert limits["readOnlyRootFilesystem"]
            assert limits["capabilities"] == {"drop": ["ALL"]}
            assert container["image"].startswith("expunge:")
            mounted = {one["name"] for one in container["volumeMounts"]}
            assert mounted <= {one["name"] for one in pod["volumes"]}
    (settings,) = (part for (kind, _), part in parts.items() if kind == "ConfigMap")
    own = settings["data"]["service.toml"]
    assert own == (ROOT / "deploy/service.toml").read_text()
