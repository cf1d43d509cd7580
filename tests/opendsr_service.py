# SPDX-License-Identifier: Apache-2.0
"""A real service over a real registry, with a clock that the test moves."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from expunge.registry import Registry
from expunge.rights import Identifier
from expunge.service.app import create_app
from expunge.service.settings import OpenDsrSettings, ServiceSettings
from tests.registries import registry_at, run_clock

from .opendsr_client import Controller, basic, bearer
from .opendsr_keys import DOMAIN, authority, issue, make_key, write_pair
from .services import serve_app

NOON = 1_772_452_800_000  # 2 March 2026
MINUTE = 60_000
KNOWN = "person 7"
ADDRESS = "ada@example.org"
CUSTOMER = "A-7"


@dataclass
class Clock:
    """What time it is for the registry, in milliseconds since 1970."""

    time: int = NOON

    def install(self, patch: pytest.MonkeyPatch) -> None:
        run_clock(patch, lambda: self.time)

    def pass_minutes(self, minutes: float) -> None:
        self.time += round(minutes * MINUTE)


@dataclass(frozen=True)
class Service:
    """A service that runs."""

    port: int
    registry: Registry
    clock: Clock
    settings: ServiceSettings

    def controller(
        self, name: str = "desk", *, edition: str = "OpenDSR", password: bool = False
    ) -> Controller:
        """Return a controller with a token of its own."""
        _, secret = self.registry.access.create(name, ["request"])
        shown = basic(secret) if password else bearer(secret)
        return Controller(self.port, authority(), DOMAIN, shown, edition)

    def close_window(self) -> None:
        """Let the window end, and apply its requests."""
        window = self.settings.windows.at(self.clock.time)
        self.clock.time = window.close
        self.registry.requests.apply(before=window.close)

    def reach_answer(self) -> None:
        """Let the window end, and its answers be shown."""
        window = self.settings.windows.at(self.clock.time)
        self.close_window()
        self.clock.time = window.answer


@contextmanager
def serving(
    folder: Path,
    clock: Clock,
    settings: ServiceSettings | None = None,
    *,
    knows_people: bool = True,
) -> Iterator[Service]:
    """Run a service over a new registry that knows a person by several names."""
    registry = registry_at(folder / "registry")
    if knows_people:
        address = Identifier("email", ADDRESS)
        number = Identifier("ios_advertising_id", CUSTOMER)
        registry.aliases.add([(KNOWN, address), (KNOWN, number)])
    settings = settings or make_settings(folder)
    app = create_app(registry, settings)
    with closing(registry), serve_app(app) as url:
        port = int(url.rpartition(":")[2])
        yield Service(port, registry, clock, settings)


def make_settings(folder: Path, **changes: Any) -> ServiceSettings:
    """Return settings of a processor whose requests the test applies."""
    if "opendsr" not in changes:
        key = make_key("processor")
        pair = write_pair(folder, key, issue(key))
        changes["opendsr"] = OpenDsrSettings(DOMAIN, *pair)
    chosen: dict[str, Any] = {
        "address": f"https://{DOMAIN}",
        "applies": False,
        "is_secure": False,
    }
    return ServiceSettings(**chosen | changes)
