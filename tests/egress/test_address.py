"""Addresses that no grant opens, in every spelling."""

import ipaddress

import pytest

from ringfence.egress.address import METADATA_NAMES, embedded, is_public, refused_address, refused_target

REFUSED = [
    "169.254.169.254",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "fd00:ec2::254",
    "fe80::1",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "ff02::1",
    "255.255.255.255",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::169.254.169.254",
    "2002:a9fe:a9fe::1",
    "64:ff9b:1::169.254.169.254",
    "::ffff:0:169.254.169.254",
]
OPEN = ["127.0.0.1", "::1", "10.0.0.5", "192.168.1.1", "172.17.0.2", "8.8.8.8", "fd00::5", "2001:db8::1"]


PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"]
NOT_PUBLIC = [
    "127.0.0.1",
    "10.0.0.1",
    "100.64.0.1",
    "192.0.0.8",
    "192.0.0.9",
    "192.88.99.1",
    "198.18.0.1",
    "240.0.0.1",
    "::1",
    "fc00::1",
    "fec0::1",
    "5f00::1",
    "4000::1",
    "3fff::1",
    "2001:db8::1",
    "2001:0:808:808::1",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "::ffff:0:8.8.8.8",
    "::8.8.8.8",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::8.8.8.8",
    "64:ff9b:1:7f00:0:100:808:808",
    "2002:7f00:1::1",
]


@pytest.mark.parametrize("text", PUBLIC)
def test_public(text: str) -> None:
    """What everybody may reach, in each form that leads there."""
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_not_public(text: str) -> None:
    """Networks of somebody's own, in each form that may lead there, and what was given to nobody."""
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    """Metadata services and what is no machine's address are refused, also inside another address."""
    assert refused_address(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", OPEN)
def test_open(text: str) -> None:
    """What somebody may name as a target is not refused."""
    assert refused_address(ipaddress.ip_address(text)) is None


@pytest.mark.parametrize("name", sorted(METADATA_NAMES))
def test_names(name: str) -> None:
    """Names of metadata services are refused before anybody resolves them."""
    assert refused_target(name, 80)


@pytest.mark.parametrize("port", [2375, 2376, 2377])
def test_engine_ports(port: int) -> None:
    """A container engine's port is refused, whosever it is."""
    assert refused_target("build-host", port)


def test_loopback_is_itself() -> None:
    """The shortest IPv6 address is not taken for an IPv4 one."""
    assert embedded(ipaddress.ip_address("::1")) == ipaddress.ip_address("::1")
