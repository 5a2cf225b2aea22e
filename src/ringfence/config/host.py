"""Hosts in their one spelling, however somebody wrote them: letter case, a last dot, IDNA, addresses as numbers. Pure.

Programs disagree on what `0x7f.1` or `127.0.0.1.` is called. What is compared with a rule is what is connected to, so
both are this module's spelling and no other.
"""

import ipaddress
import re
from ipaddress import IPv4Address, IPv6Address

Host = str | IPv4Address | IPv6Address
"""A name in lower case without a last dot, IDNA-encoded; or an address, an IPv4 one never dressed as IPv6."""

HIGHEST_PORT = 65_535
_LONGEST_TEXT = 1024
_LONGEST_NAME = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"(0x[0-9a-f]*|0[0-7]*|[1-9][0-9]{0,9})", re.ASCII)
_NUMERIC_LAST = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)


def read_host(text: str) -> Host:
    """What `text` means, as a resolver would take it: `0x7f.1`, `2130706433` and `[::ffff:127.0.0.1]` are 127.0.0.1.

    Raises:
        ValueError: It is neither a host's name nor an address, or an address of one link only.
    """
    if len(text) > _LONGEST_TEXT:
        raise ValueError(f"{text[:80]!r}... is no host: it is longer than {_LONGEST_TEXT} characters")
    is_bracketed = text.startswith("[") and text.endswith("]")
    bare = text[1:-1] if is_bracketed else text
    if is_bracketed or ":" in bare:
        return _read_ipv6(bare, text)
    name = _ascii(bare, text).removesuffix(".")
    labels = name.split(".")
    if _NUMERIC_LAST.fullmatch(labels[-1]):
        return _read_ipv4(labels, text)
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{text!r} is no host name; use letters, digits, '-' and '.'")
    return name


def read_port(word: str, text: str) -> int:
    """The port in a part of `text`.

    Raises:
        ValueError: It is none.
    """
    if not (word.isascii() and word.isdigit() and 1 <= int(word[:6]) <= HIGHEST_PORT):
        raise ValueError(f"{text!r} has the port {word!r}; a port is a number from 1 to {HIGHEST_PORT}")
    return int(word)


def written(host: Host) -> str:
    """As it stands before a port: IPv6 in brackets."""
    return f"[{host}]" if isinstance(host, IPv6Address) else str(host)


def _ascii(bare: str, text: str) -> str:
    if bare.isascii():
        return bare.lower()
    import idna  # half a millisecond for every command that never meets such a name

    try:
        return idna.encode(bare, uts46=True, std3_rules=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError) as exc:
        raise ValueError(f"{text!r} is no host name: {exc}") from None


def _read_ipv6(bare: str, text: str) -> Host:
    try:
        address = ipaddress.IPv6Address(bare)
    except ValueError:
        raise ValueError(f"{text!r} is no IPv6 address") from None
    if address.scope_id:
        raise ValueError(f"{text!r} is an address that is only good on one link; name a routed one")
    return address.ipv4_mapped or address


def _read_ipv4(labels: list[str], text: str) -> IPv4Address:
    """As inet_aton(3) reads it: one to four numbers, the last one fills what is left."""
    if len(labels) > 4 or not all(_NUMBER.fullmatch(label) for label in labels):
        raise ValueError(f"{text!r} is neither an address nor a name: its last part is a number")
    *heads, last = (_number(label) for label in labels)
    room = 256 ** (4 - len(heads))
    if any(head > 255 for head in heads) or last >= room:
        raise ValueError(f"{text!r} is no IPv4 address: a part of it is too large")
    value = last
    for place, head in enumerate(heads):
        value += head << (24 - 8 * place)
    return IPv4Address(value)


def _number(label: str) -> int:
    if label.startswith("0x"):
        return int(label[2:] or "0", 16) if len(label) <= 12 else 1 << 40
    if label.startswith("0"):
        return int(label, 8) if len(label) <= 12 else 1 << 40
    return int(label)
