# SPDX-License-Identifier: Apache-2.0
"""Policy: whom the service may call.

Addresses come from the senders of requests, so they could lead to the operator's own
network: to a database, to the cloud's metadata. Four things hold of every call. The
host is on a list that the operator wrote. The scheme is https. The port is one of those
allowed. And the peer of the connected socket has a public address, so that a name that
leads elsewhere at the moment of the call leads to nothing.
"""

from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from pathlib import Path
from typing import TypeAlias

from ...exceptions import InvalidInput
from ...registry.web_address import LAST_PORT, WebAddress, parse_web_address, spell_host

AnyAddress: TypeAlias = IPv4Address | IPv6Address
Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]

SECONDS = 10.0
LONGEST = 30.0  # less than the time for which a delivery is claimed
# What a network of one's own has. Link-local addresses are not among them: the cloud's
# metadata is there.
PRIVATE: Networks = (
    *map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")),
    *map(IPv4Network, ("100.64.0.0/10", "127.0.0.0/8")),
    *map(IPv6Network, ("fc00::/7", "::1/128")),
)
# Not public either, in every version of Python.
SPECIAL: Networks = (
    *map(IPv4Network, ("192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15")),
    *map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")),
)
GLOBAL_UNICAST = IPv6Network("2000::/3")
NAT64 = IPv6Network("64:ff9b::/96")
ISATAP = (0x00005EFE, 0x02005EFE)


@dataclass(frozen=True, slots=True)
class Policy:
    """Whom the service may call, and how long it waits.

    Parameters
    ----------
    hosts
        Names of hosts, or "*.example.com" for every host below example.com. Without
        any, nothing is called.
    ports
        The ports that may be called.
    allow_private
        Whether addresses of private networks may be called, and loopback without TLS.
        For a laptop, and for receivers in one's own network.
    seconds
        How long a call may take in all, from the name to the answer.
    authorities
        A file of certificates of those whom receivers' certificates must be issued
        by; None for those that the system trusts.
    """

    hosts: tuple[str, ...] = ()
    ports: tuple[int, ...] = (443,)
    allow_private: bool = False
    seconds: float = SECONDS
    authorities: Path | None = None

    def __post_init__(self) -> None:
        """Bring hosts into their one spelling; refuse what is not a list of hosts."""
        object.__setattr__(self, "hosts", tuple(map(_spell_pattern, self.hosts)))
        wrong = [port for port in self.ports if not 0 < port <= LAST_PORT]
        if wrong:
            raise InvalidInput(f"port {wrong[0]}; give ports from 1 to {LAST_PORT}")
        if not 0 < self.seconds <= LONGEST:
            raise InvalidInput(
                f"seconds={self.seconds}; give a time of up to {LONGEST:g} s"
            )

    def require_allowed(self, url: str) -> WebAddress:
        """Return the parts of a URL that may be called; otherwise raise.

        The error does not show the URL, which could name a person.
        """
        address = parse_web_address(url)
        reason = self.find_refusal(address)
        if reason:
            raise InvalidInput(f"an address that may not be called: {reason}")
        return address

    def find_refusal(self, address: WebAddress) -> str:
        """Return why an address may not be called; nothing if it may."""
        if not any(_matches(pattern, address.host) for pattern in self.hosts):
            return "its host is not on the list of hosts that the service may call"
        if address.port not in self.ports:
            return "its port is not one that the service may call"
        if address.scheme != "https" and not self.allow_private:
            return "it must begin with https://"
        return ""

    def allows_peer(self, peer: str, *, encrypted: bool) -> bool:
        """Return whether a socket may be connected to an address."""
        found = _read_numeric(peer)
        if found is None:
            return False
        if not encrypted:
            return self.allow_private and found.is_loopback
        return is_public(found) or (self.allow_private and is_private(found))


def is_public(address: AnyAddress) -> bool:
    """Return whether an address is one of the public Internet.

    IPv6 addresses that stand for IPv4 ones are what these are.
    """
    if isinstance(address, IPv6Address):
        inner = find_embedded(address)
        if inner is not None:
            return is_public(inner)
        if address not in GLOBAL_UNICAST:
            return False
    odd = address.is_multicast or address.is_reserved or address.is_link_local
    return address.is_global and not odd and not _is_in(address, SPECIAL)


def is_private(address: AnyAddress) -> bool:
    """Return whether an address is one of a network of one's own."""
    return _is_in(address, PRIVATE)


def find_embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a packet to an IPv6 address may end at, if any.

    Of 6to4 and Teredo nothing is asked: neither is in use, and both are refused.
    """
    number = int(address)
    inside = number >> 32 & 0xFFFFFFFF in ISATAP
    if address.ipv4_mapped is not None or address in NAT64 or inside:
        return IPv4Address(number & 0xFFFFFFFF)
    return None


def _read_numeric(text: str) -> AnyAddress | None:
    """Return an address as sockets spell it; one that stands for IPv4 becomes that."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return found if mapped is None else mapped


def _is_in(address: AnyAddress, networks: Networks) -> bool:
    return any(address in network for network in networks)


def _spell_pattern(pattern: str) -> str:
    """Return an entry of the list in its one spelling."""
    star, host = pattern.startswith("*."), spell_host(pattern.removeprefix("*."))
    if star and ("." not in host or host.replace(".", "").isdecimal()):
        raise InvalidInput(
            f"host {pattern!r} would allow far too much; name a domain, such as "
            "*.example.com"
        )
    return f"*.{host}" if star else host


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and ":" not in host
    return host == pattern
