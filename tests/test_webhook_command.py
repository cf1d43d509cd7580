# SPDX-License-Identifier: Apache-2.0
"""``expunge webhook``: addresses come, are listed and go; deliveries are replayed."""

from pathlib import Path

import pytest

from expunge.cli.output import DONE, WRONG_INPUT
from expunge.registry import Outcome, Registry, Request
from expunge.service.outbound.events import plan_messages
from expunge.service.windows import Windows
from tests.calling import call
from tests.registries import now

URL = "https://hooks.example.com/expunge"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a registry without models, which is the default."""
    folder = tmp_path / "registry"
    monkeypatch.setenv("EXPUNGE_REGISTRY", str(folder))
    assert call("init").code == DONE
    return folder


def cancel_one(folder: Path) -> str:
    """Have a request cancelled, and its message tried once without success."""
    with Registry.open(folder) as registry:
        (status,) = registry.requests.accept([Request(("ada",))], strangers=True)
        registry.requests.cancel(status.request)
        pending = registry.deliveries.pending(now())
        messages, looks = plan_messages(pending, Windows(900), now=now())
        registry.deliveries.queue(pending, messages, looks=looks)
        (one,) = registry.deliveries.claim("hooks.example.com", now=now(), most=5)
        registry.deliveries.note({one.id: Outcome(410)}, now=now())
    return status.request


def test_a_secret_is_shown_once(folder: Path) -> None:
    done = call("webhook", "add", URL, "--event", "release.made")
    assert done.code == DONE and done.out.startswith("whsec_")
    assert "not shown again" in done.err
    listed = call("webhook", "list")
    assert URL in listed.out and "release.made" in listed.out
    assert "whsec_" not in listed.out
    (line,) = call("webhook", "list", "--json").json
    assert line["events"] == ["release.made"] and "secret" not in line
    assert call("webhook", "remove", line["id"]).code == DONE
    assert call("webhook", "list", "--json").json == []


def test_json_has_the_secret(folder: Path) -> None:
    made = call("webhook", "add", URL, "--json").json
    assert made["secret"].startswith("whsec_")
    assert len(made["events"]) == 5


@pytest.mark.parametrize(
    "words",
    [
        ("add", "https://ada@example.org/"),
        ("add", URL, "--event", "request.created"),
        ("remove", "nothing"),
        ("replay", "nothing"),
        ("deliveries", "--state", "lost"),
        ("deliveries", "--after", "nowhere"),
    ],
)
def test_wrong_words_are_refused(folder: Path, words: tuple[str, ...]) -> None:
    assert call("webhook", *words).code == WRONG_INPUT


def test_deliveries_are_listed_and_replayed(folder: Path) -> None:
    assert call("webhook", "add", URL).code == DONE
    requests = {cancel_one(folder), cancel_one(folder)}
    listed = call("webhook", "deliveries", "--state", "given_up", "--json").json
    assert {one["subject"] for one in listed["deliveries"]} == requests
    first = call("webhook", "deliveries", "--most", "1")
    assert "status 410" in first.out and "--after " in first.err
    place = first.err.split()[-1]
    second = call("webhook", "deliveries", "--after", place, "--json").json
    (left,) = second["deliveries"]
    assert second["next"] == ""
    assert call("webhook", "replay", left["id"]).code == DONE
    waiting = call("webhook", "deliveries", "--state", "waiting", "--json").json
    assert [one["id"] for one in waiting["deliveries"]] == [left["id"]]
