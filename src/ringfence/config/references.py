"""`${VAR}` and `${VAR:-x}` in a text; `${secret:NAME}` stays a reference."""

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<inside>[^{}]{0,500})\}|(?=\{))")
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_SECRET = re.compile(r"secret:[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ANY = re.compile(r"(?<!\$)\$\{[^{}]*\}")
_PASSWORD = re.compile(r"://[^/@\s]*:[^/@\s]+@|[?&](?:ssl)?password=[^&\s]")


def has_reference(text: str) -> bool:
    """Whether a text refers to anything."""
    return _ANY.search(text) is not None


def has_password(url: str) -> bool:
    """Whether a password, or a part of one, is written out in an address, and not referred to."""
    return _PASSWORD.search(_ANY.sub("", url)) is not None


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """One string with its variables put in; what they hold is not looked at again.

    Raises:
        ValueError: A variable is not set and has no default, or a reference is none.
    """

    def one(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        inside = match["inside"]
        if inside is not None and _SECRET.fullmatch(inside):
            return match[0]
        variable = _VARIABLE.fullmatch(inside or "")
        if variable is None:
            raise ValueError(
                f"{text[match.start() : match.start() + 40]!r} is no reference; write ${{NAME}}, ${{NAME:-default}} or "
                "${secret:NAME}, and $$ for a dollar sign"
            )
        value = environ.get(variable["name"], variable["default"])
        if value is None:
            raise ValueError(
                f"the variable {variable['name']!r} is not set; set it, or write ${{{variable['name']}:-default}}"
            )
        return value

    return _REFERENCE.sub(one, text)
