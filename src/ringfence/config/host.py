"""Reads hosts into one canonical spelling: letter case, a trailing dot, IDNA, addresses written as numbers.

Programs disagree about the meaning of `0x7f.1` or `127.0.0.1.`. The gate compares a host with its rules and connects to
it in the spelling of this module only, so that both always mean the same host. The functions do no I/O.
"""

import ipaddress
import re
from ipaddress import IPv4Address, IPv6Address

Host = str | IPv4Address | IPv6Address
"""A name in lower case, IDNA-encoded, without a trailing dot; or an address, where IPv4-mapped IPv6 becomes IPv4."""

HIGHEST_PORT = 65_535
_LONGEST_TEXT = 1024
_LONGEST_NAME = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"(0x[0-9a-f]*|0[0-7]*|[1-9][0-9]{0,9})", re.ASCII)
_NUMERIC_LAST = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


def read_host(text: str) -> Host:
    """Return the host that `text` means to a resolver: `0x7f.1`, `2130706433`, `[::ffff:127.0.0.1]` are 127.0.0.1.

    Raises:
        ValueError: The text is neither a host name nor an address, or it is an address with a scope.
    """
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"{text[:80]!r}... is not a host: it is longer than {_LONGEST_TEXT} characters")
    is_bracketed = text.startswith("[") and text.endswith("]")
    bare = text[1:-1] if is_bracketed else text
    if is_bracketed or ":" in bare:
        return _read_ipv6(bare, text)
    name = _ascii(bare, text).removesuffix(".")
    labels = name.split(".")
    if _NUMERIC_LAST.fullmatch(labels[-1]):
        return _read_ipv4(labels, text)
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{text!r} is not a host name; use letters, digits, '-' and '.'")
    return name


def read_port(word: str, text: str) -> int:
    """Return the port that `word`, a part of `text`, names.

    Raises:
        ValueError: The word is not a port.
    """
    if not (word.isascii() and word.isdigit() and 1 <= int(word[:6]) <= HIGHEST_PORT):
        raise ValueError(f"{text!r} has the port {word!r}; a port is a number from 1 to {HIGHEST_PORT}")
    return int(word)


def format_host(host: Host) -> str:
    """Return the host as it is written before a port: an IPv6 address has brackets."""
    return f"[{host}]" if isinstance(host, IPv6Address) else str(host)


def _ascii(bare: str, text: str) -> str:
    if bare.isascii():
        return bare.lower()
    import idna  # its import takes half a millisecond, which few commands need

    try:
        return idna.encode(bare, uts46=True, std3_rules=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError) as exc:
        raise ValueError(f"{text!r} is not a host name: {exc}") from None


def _read_ipv6(bare: str, text: str) -> Host:
    try:
        address = ipaddress.IPv6Address(bare)
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv6 address") from None
    if address.scope_id:
        raise ValueError(f"{text!r} is an address that is valid on one link only; give one without a scope")
    return address.ipv4_mapped or address


def _read_ipv4(labels: list[str], text: str) -> IPv4Address:
    """Read an address as inet_aton(3) does: one to four numbers, of which the last fills the remaining bytes."""
    if len(labels) > 4 or not all(_NUMBER.fullmatch(label) for label in labels):
        raise ValueError(f"{text!r} is neither an address nor a name: its last part is numeric")
    *heads, last = (_number(label) for label in labels)
    last_limit = 256 ** (4 - len(heads))
    if any(head > 255 for head in heads) or last >= last_limit:
        raise ValueError(f"{text!r} is not an IPv4 address: a part of it is too large")
    value = last
    for index, head in enumerate(heads):
        value += head << (24 - 8 * index)
    return IPv4Address(value)


def _number(label: str) -> int:
    if label.startswith("0x"):
        return int(label[2:] or "0", 16) if len(label) <= 12 else 1 << 40
    if label.startswith("0"):
        return int(label, 8) if len(label) <= 12 else 1 << 40
    return int(label)
