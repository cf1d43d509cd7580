# SPDX-License-Identifier: Apache-2.0
"""Settings of a service: what its operator chooses when it starts.

They come from a TOML file, whose keys are the fields of ``ServiceSettings`` with the
tables ``opendsr`` and ``oidc``. The client's secret of an identity provider is read
from the environment, so that the file may be shown to others.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..exceptions import InvalidInput
from .outbound.policy import Policy
from .windows import Windows

KIB = 1024
STRICT = ConfigDict(strict=True, extra="forbid")  # of what a file says


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Sign-in by an identity provider.

    Parameters
    ----------
    issuer
        Where its ``.well-known/openid-configuration`` is found.
    client_id, client_secret
        As the provider gave them.
    scopes
        What people may do here, by the value of their claim.
    claim
        The claim that says it, such as "groups"; a text or a list of texts.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    claim: str = "groups"


@dataclass(frozen=True, slots=True)
class OpenDsrSettings:
    """What an OpenDSR processor needs.

    Parameters
    ----------
    domain
        Of the processor, as in its certificate.
    certificate, key
        PEM files: the certificate with its chain, and the private RSA key.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    domain: str
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of a service.

    Parameters
    ----------
    window
        Seconds in which requests are gathered before they are applied.
    address
        Under which others reach the service, such as "https://expunge.example.org".
    applies
        Whether this process applies requests and calls others; others only accept.
    rate
        Calls that a token may make in a minute.
    largest_body, largest_batch
        Bytes of a request, and of a batch of requests.
    people_per_call, people_per_day, bytes_per_day
        How many people a call may ask for, and how many people and bytes the calls of a
        sender may bring in a day of UTC.
    connections
        How many there may be at a time; further calls are answered with 503.
    header_seconds, body_seconds
        In which the head of a call must arrive, and then its body.
    notice
        Seconds for which ``/readyz`` says 503 before the service stops listening.
    id_kinds
        Kinds of identifiers whose raw values are the ids that models know.
    callback_hosts, callback_ports
        Hosts that may be called, exactly or as "*.example.org", and the ports there; by
        default no host.
    callback_authorities
        A file of certificates of the authorities that those hosts are trusted by; empty
        for those that the system trusts.
    allow_private
        Whether those hosts may have private addresses, and be reached without TLS if
        they are this machine.
    fides_address
        Where fides is reached, if it is to be called back.
    session_minutes
        After which a person who does nothing must sign in again.
    is_secure
        Whether the dashboard is reached by https alone; its cookies then need it.
    opendsr, oidc
        Set if the service offers them.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    window: int = 900
    address: str = "http://127.0.0.1:8300"
    applies: bool = True
    rate: int = 1200
    largest_body: int = 256 * KIB
    largest_batch: int = 16 * KIB * KIB
    people_per_call: int = 10_000
    people_per_day: int = 100_000
    bytes_per_day: int = 64 * KIB * KIB
    connections: int = 1000
    header_seconds: int = 10
    body_seconds: int = 60
    notice: int = 1
    id_kinds: tuple[str, ...] = ("id", "controller_customer_id")
    callback_hosts: tuple[str, ...] = ()
    callback_ports: tuple[int, ...] = (443,)
    callback_authorities: str = ""
    allow_private: bool = False
    fides_address: str = ""
    session_minutes: int = 30
    is_secure: bool = True
    opendsr: OpenDsrSettings | None = None
    oidc: OidcSettings | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        _ = self.windows, self.policy  # each refuses what it cannot be
        if self.rate < 1:
            raise InvalidInput(f"rate={self.rate}; give at least 1 call a minute")
        for name in (
            "people_per_call",
            "people_per_day",
            "bytes_per_day",
            "connections",
            "header_seconds",
            "body_seconds",
        ):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name}={getattr(self, name)}; give at least 1")
        if self.notice < 0:
            raise InvalidInput(f"notice={self.notice}; give 0 seconds or more")

    @property
    def windows(self) -> Windows:
        """How time is cut into windows."""
        return Windows(self.window)

    @property
    def policy(self) -> Policy:
        """Whom the service may call."""
        authorities = self.callback_authorities
        return Policy(
            self.callback_hosts,
            self.callback_ports,
            self.allow_private,
            authorities=Path(authorities) if authorities else None,
        )


SECRET = "EXPUNGE_OIDC_SECRET"
TABLES = {"opendsr": OpenDsrSettings, "oidc": OidcSettings}
# What a key takes, by how the type of a validation error begins.
WANTED = {
    "int": "a whole number",
    "bool": "true or false",
    "tuple": "a list",
    "dict": "a table",
    "mapping": "a table",
    "dataclass": "a table, its name in brackets above its keys",
}


def read_settings(path: Path) -> ServiceSettings:
    """Return the settings in a TOML file; refuse unknown keys and wrong types."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None
    opendsr, oidc = data.get("opendsr"), data.get("oidc")
    for name in ("certificate", "key"):
        if isinstance(opendsr, dict) and isinstance(opendsr.get(name), str):
            opendsr[name] = str(path.parent / opendsr[name])
    if isinstance(oidc, dict):
        oidc["client_secret"] = os.environ.get(SECRET, "")
    try:
        # As JSON, where lists are tuples and texts are paths, and nothing else is.
        text = json.dumps(data, default=str)
        return TypeAdapter(ServiceSettings).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(_explain(first, str(path))) from None


def _explain(error: Mapping[str, Any], file: str) -> str:
    """Return what is wrong with a file, and what to do, in one sentence."""
    place, kind = [str(part) for part in error["loc"]], str(error["type"])
    key = ".".join(place)
    if kind == "value_error":
        return str(error["ctx"]["error"])  # our own words
    if kind == "unexpected_keyword_argument":
        known = fields(TABLES.get(place[0], ServiceSettings))
        names = ", ".join(one.name for one in known)
        return f"{file}: unknown key {key!r}; the keys are {names}"
    if kind == "missing":
        return f"{file}: {key} is missing; give it a value"
    wanted = WANTED.get(kind.partition("_")[0], "a text")
    return f"{file}: {key} is {error['input']!r}; give {wanted}"
