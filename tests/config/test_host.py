"""Each host has one spelling, whatever somebody wrote."""

import socket
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config.host import format_host, read_host

SAME = {
    "PyPI.org": "pypi.org",
    "pypi.org.": "pypi.org",
    "localhost.": "localhost",
    "b\u00fccher.example": "xn--bcher-kva.example",
    "pypi\u3002org": "pypi.org",
    "\uff50ypi.org": "pypi.org",
    "_dmarc.example.com": "_dmarc.example.com",
}
ADDRESSES = {
    "127.1": "127.0.0.1",
    "0x7f.1": "127.0.0.1",
    "0x7f.0.0.1": "127.0.0.1",
    "0177.0.0.1": "127.0.0.1",
    "2130706433": "127.0.0.1",
    "0x7f000001": "127.0.0.1",
    "017700000001": "127.0.0.1",
    "127.0.0.1.": "127.0.0.1",
    "\uff11\uff12\uff17.1": "127.0.0.1",
    "[::ffff:127.0.0.1]": "127.0.0.1",
    "[::ffff:7f00:1]": "127.0.0.1",
    "::ffff:127.0.0.1": "127.0.0.1",
    "[0:0:0:0:0:0:0:1]": "::1",
    "169.254.43518": "169.254.169.254",
}
BAD = [
    "", ".", "a..b", "-a.example", "a b", "a/b", "a@b", "a%62", "a\0b", "a\nb", "[::1", "[::1]x", "[fe80::1%eth0]",
    "fe80::1%25eth0", "[127.0.0.1]", "1.2.3.4.5", "256.1.1.1", "1.2.3.256", "4294967296", "0x100000000", "08.1.1.1",
    "a.1", "x" * 64 + ".example", "a." * 200 + "example", "z" * 5000, "0" * 500, "\u200b.example",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_names(text: str) -> None:
    """Letter case, a last dot and IDNA make no difference."""
    assert read_host(text) == SAME[text]


@pytest.mark.parametrize("text", ADDRESSES)
def test_addresses(text: str) -> None:
    """Every spelling of an address that a resolver knows is that address."""
    assert str(read_host(text)) == ADDRESSES[text]


@pytest.mark.parametrize("text", BAD)
def test_refused(text: str) -> None:
    """What is no host, or of one link only, is refused."""
    with pytest.raises(ValueError, match=r"is not |neither|one link|longer"):
        read_host(text)


@given(text=st.text(max_size=40) | st.from_regex(r"[0-9a-fx.]{1,20}", fullmatch=True))
def test_any_text(text: str) -> None:
    """Any text is a host whose spelling means the same, or is refused; what a resolver takes for a number is one."""
    try:
        host = read_host(text)
    except ValueError:
        return
    assert read_host(format_host(host)) == host
    if isinstance(host, str):
        with pytest.raises(OSError, match="illegal IP address"):
            socket.inet_aton(host)


@given(number=st.integers(0, 2**32 - 1))
def test_any_number(number: int) -> None:
    """A number in any base is the address that the system's own reader takes it for."""
    for text in (str(number), hex(number), f"0{number:o}" if number else "0"):
        assert read_host(text) == IPv4Address(socket.inet_aton(text))


@given(number=st.integers(0, 2**128 - 1))
def test_any_ipv6(number: int) -> None:
    """An IPv6 address in brackets is itself, or the IPv4 one that it is a dress of."""
    address = IPv6Address(number)
    assert read_host(f"[{address.exploded}]") == (address.ipv4_mapped or address)
