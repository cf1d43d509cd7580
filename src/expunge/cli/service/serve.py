# SPDX-License-Identifier: Apache-2.0
"""The command ``serve``: a registry over HTTP."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...exceptions import needing
from ..common import (
    DONE,
    WRONG_INPUT,
    CommandFailed,
    CommonOptions,
    print_note,
    print_text,
    require_file,
)

if TYPE_CHECKING:
    from ...registry import Registry
    from ...service.settings import ServiceSettings

DEV_WINDOW, DEMO_WINDOW = 10, 60
THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServeCommand(CommonOptions):
    """Serve a registry: an API, a dashboard, and the protocols of privacy desks.

    One process accepts requests, and applies them when their window closes. Several may
    serve one registry. It speaks http: put a proxy with TLS before it. On SIGTERM it
    finishes the calls and the batch at hand.
    """

    registry: Annotated[
        Path | None,
        typer.Argument(
            metavar="REGISTRY",
            envvar="EXPUNGE_REGISTRY",
            help="Folder of the registry.",
        ),
    ] = None
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any.")] = 8300
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="EXPUNGE_CONFIG",
            help="Settings as TOML, see docs/operations.md.",
        ),
    ] = None
    window: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            help="How long requests are gathered before they are applied.",
        ),
    ] = None
    accept_only: Annotated[
        bool, typer.Option("--accept-only", help="Leave applying to another process.")
    ] = False
    dev: Annotated[
        bool,
        typer.Option(
            "--dev",
            help="For a laptop: readable logs, windows of 10 seconds, no https, and a "
            "token that is printed once.",
        ),
    ] = False
    demo: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Serve an example in this folder instead, made on the first call, as "
            "with --dev and windows of a minute.",
        ),
    ] = None

    def perform(self) -> int:
        """Serve until the process is told to end."""
        with needing("service", "expunge serve"):
            from ...registry import Registry
            from ...service.app import listen, serve
        self._require_this_machine()
        with listen(self.host, self.port) as listener:
            folder = self._find_folder()
            port = listener.getsockname()[1]
            settings = self._choose_settings(f"http://{self.host}:{port}")
            with Registry.open(folder) as registry:
                if self.is_local:
                    print_sign_in(registry, settings.address)
                serve(registry, settings, listener=listener, is_readable=self.is_local)
        return DONE

    @property
    def is_local(self) -> bool:
        """Whether this is for a laptop."""
        return self.dev or self.demo is not None

    def _require_this_machine(self) -> None:
        """Refuse to show others a service without https."""
        if self.is_local and self.host not in THIS_MACHINE:
            raise CommandFailed(
                f"--host {self.host} with --dev or --demo, which have no https; leave "
                "it out, or serve without them",
                WRONG_INPUT,
            )

    def _find_folder(self) -> Path:
        """Return the folder of the registry, which may be the example's."""
        if self.demo is not None:
            from ...demo.example import prepare_example

            return prepare_example(self.demo, print_note)
        if self.registry is None:
            raise CommandFailed(
                "no registry was named; give its folder, as in expunge serve "
                "expunge-registry, or --demo and a new folder for an example",
                WRONG_INPUT,
            )
        return self.registry

    def _choose_settings(self, address: str) -> "ServiceSettings":
        """Return the settings of the file, changed by options."""
        from ...service.settings import ServiceSettings, read_settings

        if self.config is None:
            settings = ServiceSettings(address=address)
        else:
            require_file(self.config)
            settings = read_settings(self.config)
        if self.is_local:
            window = DEV_WINDOW if self.demo is None else DEMO_WINDOW
            settings = replace(
                settings, address=address, is_secure=False, window=window
            )
        if self.window is not None:
            settings = replace(settings, window=self.window)
        return replace(settings, applies=settings.applies and not self.accept_only)


def print_sign_in(registry: "Registry", address: str) -> None:
    """Make a token that may do everything for a day, and print it."""
    _, secret = registry.access.create("dev", ["admin"], days=1)
    print_note(f"serving at {address}; Ctrl-C ends it")
    print_note("sign in with this token; it ends tomorrow and is not shown again:")
    print_text(secret)
