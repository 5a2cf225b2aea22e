"""Amounts of money: whole cents, so that sums are exact."""

import re

from kitty.errors import KittyError

_PLAIN = re.compile(r"([0-9]+)(?:\.([0-9]{1,2}))?")


def parse(text):
    """The cents that `text` writes, such as `12`, `12.5` or `12.50`; raises KittyError."""
    found = _PLAIN.fullmatch(text.strip())
    if found is None:
        raise KittyError(f"{text!r} is not an amount; write it like 12.50")
    whole, part = found.groups()
    return int(whole) * 100 + int((part or "0").ljust(2, "0"))


def show(cents):
    """`cents` as an amount with two decimals; a debt has a minus."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def split(cents, parts):
    """`cents` in so many parts, as even as can be; the first ones take the cents that are left over."""
    each, left = divmod(cents, parts)
    return [each + (place < left) for place in range(parts)]
