"""The message of a loop's commit: what it is for, and trailers that say where it comes from.

Titles and ids come from story files, models from agents: none of it can make a trailer of its own.
"""

import re

from ringfence.frozen import frozen

_MOST_SUBJECT = 200
_MOST_VALUE = 300
_MOST_BODY = 20_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LIKE_TRAILER = re.compile(r"(?i)^\s*(?:ringfence-[\w-]*|[\w-]+-by)\s*:")


@frozen
class Trailers:
    """Whose commit it is."""

    loop: str
    story: str
    attempt: int
    role: str
    model: str = ""
    """Empty: not known; then there is no such trailer."""


def compose(message: str, trailers: Trailers, *, signed_off_by: tuple[str, str] | None) -> bytes:
    """The whole message, as bytes of UTF-8 without any control letter but line ends.

    Args:
        message: The subject in its first line, then any text.
        trailers: Values are cut to one line of 300 letters.
        signed_off_by: Name and address of the user, where git knows them.
    """
    first, _, rest = message.strip().partition("\n")
    lines = [_line(first, _MOST_SUBJECT) or "(no title)", ""]
    body = [_body_line(line) for line in rest.strip("\n")[:_MOST_BODY].splitlines()]
    if any(body):
        lines += [*body, ""]
    values = {
        "Loop": trailers.loop,
        "Story": trailers.story,
        "Attempt": str(trailers.attempt),
        "Role": trailers.role,
        "Model": trailers.model,
    }
    lines += [f"Ringfence-{key}: {value}" for key, text in values.items() if (value := _line(text))]
    if signed_off_by is not None:
        name, email = (re.sub(r"[<>]", "", _line(part)) for part in signed_off_by)
        lines.append(f"Signed-off-by: {name} <{email}>")
    return ("\n".join(lines) + "\n").encode()


def _body_line(line: str) -> str:
    plain = _CONTROL.sub(" ", _plain(line)).rstrip()
    # Indented it is no trailer to anybody.
    return f"    {plain.lstrip()}" if _LIKE_TRAILER.match(plain) else plain


def _line(text: str, most: int = _MOST_VALUE) -> str:
    return _CONTROL.sub(" ", _plain(text)).strip()[:most].rstrip()


def _plain(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)
