# SPDX-License-Identifier: Apache-2.0
"""Whom the service may call: URLs in one spelling, hosts on a list, public peers."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.exceptions import InvalidInput
from expunge.registry.web_address import parse_web_address, spell_host
from expunge.service.outbound.policy import Policy, is_public

OPEN = Policy(("hooks.example.com", "*.example.org", "203.0.113.5", "[2001:db8::1]"))


@pytest.mark.parametrize(
    ("url", "host", "port", "target"),
    [
        ("https://hooks.example.com", "hooks.example.com", 443, "/"),
        ("HTTPS://Hooks.Example.COM./a?b=c", "hooks.example.com", 443, "/a?b=c"),
        ("https://hooks.example.com?b=c", "hooks.example.com", 443, "/?b=c"),
        ("https://hooks.example.com:8443/", "hooks.example.com", 8443, "/"),
        ("https://hooks.example.com:/", "hooks.example.com", 443, "/"),
        ("http://localhost:8000/x", "localhost", 8000, "/x"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example", 443, "/"),
        ("https://\uff48\uff4f\uff4f\uff4b\uff53\uff0ede/", "hooks.de", 443, "/"),
        ("https://\u2460\u2461\u2466.0.0.1/", "127.0.0.1", 443, "/"),
        ("https://[0:0::1]/", "::1", 443, "/"),
        ("https://[::ffff:127.0.0.1]/", "::ffff:7f00:1", 443, "/"),
    ],
)
def test_a_url_is_read_in_one_way(url: str, host: str, port: int, target: str) -> None:
    address = parse_web_address(url)
    assert (address.host, address.port, address.target) == (host, port, target)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.com",
        "//hooks.example.com/",
        "ftp://hooks.example.com/",
        "file:///etc/passwd",
        "https://",
        "https:///path",
        "https:hooks.example.com",
        "https://ada@hooks.example.com/",
        "https://hooks.example.com@127.0.0.1/",
        "https://hooks.example.com\\@127.0.0.1/",
        "https://hooks.example.com\\.evil.com/",
        "https://hooks.example.com/#part",
        "https://hooks.example.com#@127.0.0.1/",
        "https://hooks.example.com/a b",
        "https://hooks.example.com/a\r\nHost: b",
        "https://hooks.example.com\t/",
        " https://hooks.example.com/",
        "https://hooks.example.com/\u00fc",
        "https://hooks%2eexample.com/",
        "https://hooks.example.com:0/",
        "https://hooks.example.com:65536/",
        "https://hooks.example.com:\u0661/",
        "https://hooks.example.com:80:80/",
        "https://hooks..example.com/",
        "https://.example.com/",
        "https://example.com../",
        "https://-a.example.com/",
        "https://a_b.example.com/",
        f"https://{'a' * 64}.com/",
        f"https://{'a.' * 130}com/",
        f"https://hooks.example.com/{'a' * 2048}",
        "https://fa\u00df.de/",
        "https://a\u200db.de/",
        "https://\u2100.com/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://127.0.0.01/",
        "https://0x7f.0.0.1/",
        "https://0x7f000001/",
        "https://2130706433/",
        "https://1.2.3.4.5/",
        "https://hooks.example.0x1/",
        "https://[::1/",
        "https://[::1]a/",
        "https://[::1%25lo]/",
        "https://[fe80::1%lo]/",
        "https://[127.0.0.1]/",
        "https://::1/",
    ],
)
def test_a_url_that_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        parse_web_address(url)
    said = str(refusal.value).replace("https://hooks.example.com/path", "")
    assert not url or url not in said


@given(st.text(max_size=60))
def test_a_host_is_spelled_once_and_for_all(text: str) -> None:
    try:
        host = spell_host(text)
    except InvalidInput:
        return
    again = f"[{host}]" if ":" in host else host
    assert spell_host(again) == host
    assert host.isascii() and host == host.lower()


@given(st.text(max_size=80))
def test_whatever_is_read_is_called_as_it_was_checked(text: str) -> None:
    url = f"https://{text}"
    try:
        address = parse_web_address(url)
    except InvalidInput:
        return
    whole = f"https://{address.authority}{address.target}"
    assert parse_web_address(whole) == address


def test_an_address_shows_no_path() -> None:
    address = parse_web_address("https://hooks.example.com/ada@example.org")
    assert "ada" not in repr(address)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/",
        "https://a.example.org/",
        "https://a.b.example.org/",
        "https://203.0.113.5/",
        "https://[2001:DB8:0::1]/",
    ],
)
def test_hosts_on_the_list_are_allowed(url: str) -> None:
    assert OPEN.require_allowed(url).scheme == "https"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://example.com/", "host"),
        ("https://example.org/", "host"),
        ("https://badexample.org/", "host"),
        ("https://hooks.example.com.evil.net/", "host"),
        ("https://203.0.113.6/", "host"),
        ("https://hooks.example.com:8443/", "port"),
        ("http://hooks.example.com:443/", "https"),
    ],
)
def test_others_are_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        OPEN.require_allowed(url)


def test_an_empty_list_allows_nothing() -> None:
    with pytest.raises(InvalidInput, match="host"):
        Policy().require_allowed("https://hooks.example.com/")


@pytest.mark.parametrize("host", ["*", "*.com", "*.0.0.1", "a.*.com", "", "*.", "a b"])
def test_an_entry_that_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidInput):
        Policy((host,))


@pytest.mark.parametrize("changes", [{"ports": (0,)}, {"seconds": 0}, {"seconds": 99}])
def test_other_settings_are_checked(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Policy(**changes)  # type: ignore[arg-type]


NOT_PUBLIC = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 127.0.0.1 127.255.255.254 169.254.169.254
172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.9 192.0.2.1 192.88.99.1 192.168.1.1
198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.1.2.3 240.0.0.1 255.255.255.255
:: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254
64:ff9b::7f00:1 64:ff9b::10.0.0.1 64:ff9b:1::1 100::1 2001::1 2001:10::1
2001:db8::1 2002:7f00:1:: 2002:a00:1::1 2002:5db8:d822::1 3fff::1 5f00::1
fc00::1 fd12::1 fe80::1 fec0::1 ff02::1 ff0e::1
2a00:1450::5efe:10.0.0.1 2a00:1450::200:5efe:127.0.0.1
""".split()
PUBLIC = """
8.8.8.8 93.184.216.34 100.63.255.255 172.32.0.1 2606:4700::1111 ::ffff:8.8.8.8
64:ff9b::8.8.8.8 2a00:1450::5efe:8.8.8.8
""".split()


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))
    assert not OPEN.allows_peer(address, encrypted=True)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    assert is_public(ip_address(address))
    assert OPEN.allows_peer(address, encrypted=True)
    assert not OPEN.allows_peer(address, encrypted=False)


class TestPrivateNetworks:
    OWN = Policy(("localhost",), allow_private=True)

    @pytest.mark.parametrize(
        "address", ["10.0.0.1", "127.0.0.1", "::1", "fd12::1", "::ffff:10.0.0.1"]
    )
    def test_they_can_be_allowed(self, address: str) -> None:
        assert self.OWN.allows_peer(address, encrypted=True)

    @pytest.mark.parametrize(
        "address",
        ["169.254.169.254", "fe80::1%eth0", "224.0.0.1", "0.0.0.0", "2002:a00:1::1"],
    )
    def test_but_never_what_is_nobodys_network(self, address: str) -> None:
        assert not self.OWN.allows_peer(address, encrypted=True)

    @pytest.mark.parametrize(
        ("address", "allowed"),
        [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False)],
    )
    def test_without_tls_only_loopback(self, address: str, allowed: bool) -> None:
        assert self.OWN.allows_peer(address, encrypted=False) is allowed

    def test_what_is_no_address_is_refused(self) -> None:
        assert not self.OWN.allows_peer("localhost", encrypted=True)
