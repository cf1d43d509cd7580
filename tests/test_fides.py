# SPDX-License-Identifier: Apache-2.0
"""The connector for fides has the fields that fides demands, and works.

The rules and the order of calls are restated here. ``make fides`` has fides itself
check the files and make the calls.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from .opendsr_service import ADDRESS, Clock, Service, serving

FOLDER = Path(__file__).parents[1] / "connectors" / "fides"
CONFIGS = ("expunge_config.yml", "expunge_callback_config.yml")
FIDES_PYTHON = os.environ.get("EXPUNGE_FIDES_PYTHON", "")
STANDARD = {
    "privacy_request_id",
    "uuid",
    "iso_8601_datetime",
    "reply_to",
    "reply_to_token",
    "masked_object_fields",
}
REQUEST_FIELDS = {
    "path",
    "method",
    "headers",
    "query_params",
    "body",
    "param_values",
    "async_config",
    "correlation_id_path",
}


def read_config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())["saas_config"]
    return found


def placeholders(text: str) -> set[str]:
    return set(re.findall("<([^<>]+)>", text))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_has_the_fields_that_fides_demands(name: str) -> None:
    config = read_config(name)
    required = "fides_key name type description version connector_params client_config"
    assert {*required.split(), "test_request", "endpoints"} == set(config)
    assert config["fides_key"] == "<instance_fides_key>"
    assert config["type"] == config["type"].lower()
    client = config["client_config"]
    assert set(client) == {"protocol", "host", "authentication"}
    assert client["authentication"]["strategy"] == "bearer"
    known = {one["name"] for one in config["connector_params"]}
    used = placeholders(json.dumps(client))
    assert used == known
    secret = [one["name"] for one in config["connector_params"] if one.get("sensitive")]
    assert secret == ["api_token"]


@pytest.mark.parametrize("name", CONFIGS)
def test_an_endpoint_deletes_and_does_nothing_else(name: str) -> None:
    (endpoint,) = read_config(name)["endpoints"]
    assert set(endpoint["requests"]) == {"delete"}
    delete = endpoint["requests"]["delete"]
    assert set(delete) <= REQUEST_FIELDS
    assert {"path", "method"} <= set(delete)
    values = delete["param_values"]
    for one in values:
        assert len(set(one) & {"identity", "references", "connector_param"}) == 1
    known = {one["name"] for one in values} | STANDARD
    assert placeholders(delete["body"]) <= known
    json.loads(delete["body"])


def test_the_answer_is_polled() -> None:
    (endpoint,) = read_config(CONFIGS[0])["endpoints"]
    delete = endpoint["requests"]["delete"]
    assert delete["correlation_id_path"]
    assert delete["async_config"]["strategy"] == "polling"
    status = delete["async_config"]["configuration"]["status_request"]
    extra = {"status_path", "status_completed_value"}
    assert extra <= set(status) <= REQUEST_FIELDS | extra
    assert placeholders(status["path"]) == {"correlation_id"}


def test_the_dataset_has_the_collection_of_the_endpoint() -> None:
    text = (FOLDER / "expunge_dataset.yml").read_text()
    (dataset,) = yaml.safe_load(text)["dataset"]
    assert dataset["fides_key"] == "<instance_fides_key>"
    (collection,) = dataset["collections"]
    for name in CONFIGS:
        (endpoint,) = read_config(name)["endpoints"]
        assert endpoint["name"] == collection["name"]
    keys = [one["fides_meta"].get("primary_key") for one in collection["fields"]]
    assert keys == [True]  # without one nothing is erased


def fill(text: str, values: dict[str, str]) -> str:
    """Return a text with its placeholders filled in; refuse one that is unknown."""
    return re.sub("<([^<>]+)>", lambda found: values[found[1]], text)


class Fides:
    """What fides does with a configuration: one connection, and what it fills in."""

    def __init__(self, config: dict[str, Any], port: int, secret: str) -> None:
        self.config = config
        self.port = port
        self.secret = secret
        self.values = {
            "email": ADDRESS,
            "uuid": str(uuid4()),
            # Local time, marked as UTC, is what it writes.
            "iso_8601_datetime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "reply_to": "/api/v1/request-task/callback",
            "reply_to_token": "a.jwe.token",
        }

    def send(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Send one request of the configuration."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        token = self.config["client_config"]["authentication"]["configuration"]["token"]
        headers = {one["name"]: one["value"] for one in request.get("headers", [])}
        headers["Authorization"] = f"Bearer {fill(token, {'api_token': self.secret})}"
        body = fill(request["body"], self.values) if "body" in request else None
        path = fill(request["path"], self.values)
        connection.request(request["method"], path, body, headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        connection.close()
        return answer.status, said


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    clock = Clock(round(datetime.now(UTC).timestamp()) * 1000)
    clock.install(monkeypatch)
    with serving(tmp_path, clock) as service:
        yield service


def test_fides_erases_and_polls(service: Service) -> None:
    _, secret = service.registry.access.create("fides", ["request"])
    config = read_config(CONFIGS[0])
    fides = Fides(config, service.port, secret)
    assert fides.send(config["test_request"])[0] == 200
    (endpoint,) = config["endpoints"]
    delete = endpoint["requests"]["delete"]
    code, said = fides.send(delete)
    assert code == 201
    fides.values["correlation_id"] = said[delete["correlation_id_path"]]
    status = delete["async_config"]["configuration"]["status_request"]

    def is_done() -> bool:
        code, said = fides.send(status)
        assert code == 200
        return bool(said[status["status_path"]] == status["status_completed_value"])

    assert not is_done()
    service.close_window()
    assert not is_done()
    service.reach_answer()
    assert is_done()
    # A privacy request that is queued again comes with another id.
    fides.values["uuid"] = str(uuid4())
    assert fides.send(delete)[0] == 201


def test_a_wrong_token_fails_the_test_of_the_connection(service: Service) -> None:
    config = read_config(CONFIGS[0])
    fides = Fides(config, service.port, "expunge_wrong")
    assert fides.send(config["test_request"])[0] == 401


@pytest.mark.skipif(not FIDES_PYTHON, reason="`make fides` runs it beside fides itself")
def test_fides_itself_takes_and_uses_the_connector(
    service: Service, tmp_path: Path
) -> None:
    _, secret = service.registry.access.create("fides", ["request"])
    address = f"http://127.0.0.1:{service.port}"
    script = Path(__file__).with_name("fides_package.py")
    process = subprocess.Popen(
        [FIDES_PYTHON, script, FOLDER, address, secret, ADDRESS],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "FIDES__DEV_MODE": "true"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None

    def read() -> dict[str, Any]:
        """Return the next line that is not of a log."""
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith('{"'))
        found: dict[str, Any] = json.loads(line)
        return found

    with process:
        checked = read()
        assert checked["supports"] == ["erasure"]
        assert checked["callback"]["extensions"]["ethyca.com"]["reply_to"]
        assert read()["test"]["api_version"] == "2.0"
        assert read()["accepted"]["controller_id"] == "fides"
        assert read() == {"done": False}
        service.reach_answer()
        process.stdin.write("\n")
        process.stdin.flush()
        assert read() == {"done": True}
        process.stdin.close()
    assert process.returncode == 0
