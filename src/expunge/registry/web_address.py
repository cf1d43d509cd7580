# SPDX-License-Identifier: Apache-2.0
"""Web addresses: which URLs can be called at all, each in one spelling.

Two programs that read one URL differently are how a call is led astray: one checks a
host, the other connects to another. So a URL is read once, strictly. What is odd
(a user name, a fragment, an address in octal, a backslash) is refused, the host
gets one spelling, and everything after works with the parts.

A URL can hold an identity, in its path say. No error and no repr shows one.
"""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NoReturn

from ..exceptions import InvalidInput

LONGEST = 2048
LONGEST_HOST, LONGEST_LABEL = 253, 63
PORTS = {"https": 443, "http": 80}
LAST_PORT = 65535
# The older and the newer standard of international names lead these to two hosts.
TWO_READINGS = frozenset("ßς\u200c\u200d")

_AUTHORITY = re.compile(r"(?P<host>\[[^]]*]|[^][:]*)(:(?P<port>[0-9]{0,5}))?")
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True, repr=False)
class WebAddress:
    """The parts of a URL that is called.

    Parameters
    ----------
    scheme
        "https" or "http".
    host
        In lower case and ASCII, without a dot at its end; an IPv6 address without
        brackets.
    port
        A number, also where the URL gives none.
    target
        Path and query, as they are sent.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The host, with the port unless it is the usual one, as a header has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    def __repr__(self) -> str:
        return f"WebAddress({self.scheme}, {self.host})"


def parse_web_address(url: object) -> WebAddress:
    """Return the parts of a URL; refuse what could be read in two ways."""
    if not isinstance(url, str) or not 0 < len(url) <= LONGEST:
        _refuse(f"it must have 1 to {LONGEST} characters")
    scheme, colon, rest = url.partition("://")
    scheme = scheme.lower()
    if not colon or scheme not in PORTS:
        _refuse("it must begin with https://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    target = rest[len(authority) :]
    if "#" in target:
        _refuse("it has a fragment (#), which is never sent")
    if target and not _PRINTABLE.fullmatch(target):
        _refuse("its path has characters that must be percent-encoded")
    if "\\" in url or "@" in authority or "%" in authority:
        _refuse("it has a user name, a backslash or a percent sign before its path")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        _refuse("its host or port cannot be parsed")
    port = int(found["port"] or PORTS[scheme])
    if not 0 < port <= LAST_PORT:
        _refuse(f"its port is not from 1 to {LAST_PORT}")
    target = target if target.startswith("/") else f"/{target}"
    return WebAddress(scheme, spell_host(found["host"]), port, target)


def spell_host(text: str) -> str:
    """Return a host in its one spelling; refuse what is not a host."""
    if text.startswith("["):
        return _spell_ipv6(text)
    if not TWO_READINGS.isdisjoint(text) or not 0 < len(text) <= LONGEST_HOST + 1:
        _refuse("its host is empty, too long, or has letters that have two readings")
    try:
        host = text.lower().encode("idna").decode("ascii").lower()
    except UnicodeError:
        _refuse("its host is no name")
    host = host.removesuffix(".")
    labels = host.split(".")
    if len(host) > LONGEST_HOST or not all(map(_is_label, labels)):
        _refuse("its host is no name")
    return _spell_ipv4(host) if _NUMBER.fullmatch(labels[-1]) else host


def _is_label(label: str) -> bool:
    return len(label) <= LONGEST_LABEL and _LABEL.fullmatch(label) is not None


def _spell_ipv4(host: str) -> str:
    """Return an address of four decimal numbers; refuse octal and other spellings."""
    try:
        return str(IPv4Address(host))
    except AddressValueError:
        _refuse("its host is an address in an odd spelling; write four numbers")


def _spell_ipv6(text: str) -> str:
    try:
        return IPv6Address(text.removeprefix("[").removesuffix("]")).compressed
    except AddressValueError:
        _refuse("its host is not an IPv6 address")


def _refuse(reason: str) -> NoReturn:
    raise InvalidInput(
        f"a web address cannot be used: {reason}; give one such as "
        "https://hooks.example.com/path"
    )
