"""Takes secrets out of everything that is recorded or shown, by value: wherever one stands, it is replaced.

Found are the value itself and the forms in which programs usually print it: JSON-escaped (once or twice), percent-
encoded, with any of its characters escaped by a percent sign or by a backslash with `u` or `x`, hexadecimal, base64
(standard and URL-safe, at each of the three alignments it can have inside a longer text). Not found: a value cut in two,
compressed, encrypted, or spelled out of order.
Redaction is the second wall; the first is that secrets do not enter the fence.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, AnyStr, Generic, TypeVar, cast
from urllib.parse import quote, quote_plus

import msgspec

from ringfence.events import Event

MINIMUM_LENGTH = 8
"""Shorter values are not looked for: they would stand in innocent text, and be guessed from the gaps."""

REPLACEMENT = "[redacted]"
_HINT = r"%[0-9a-fA-F]{2}|\\[ux][0-9a-fA-F]{2}"
"""Only a text in which characters are escaped is searched for a secret whose characters are."""

_remembered: set[str] = set()
"""Every secret that this process has had from a source, for its error messages."""

T = TypeVar("T")
E = TypeVar("E", bound=Event)


def remember(values: Iterable[str]) -> None:
    """Keep values in mind until this process ends: no error that it prints may show them."""
    _remembered.update(values)


def remembered() -> tuple[str, ...]:
    """What this process was told to keep in mind."""
    return tuple(_remembered)


class _Finder(Generic[AnyStr]):
    """Replaces any of several forms in text of one kind."""

    def __init__(
        self,
        forms: Iterable[AnyStr],
        bar: AnyStr,
        replacement: AnyStr,
        *,
        hint: AnyStr,
        escaped: Iterable[AnyStr] = (),
    ) -> None:
        # The longest first, so that no part of a longer one is left over.
        self.forms: list[AnyStr] = sorted(set(forms), key=lambda form: (-len(form), form))
        self._pattern: re.Pattern[AnyStr] = re.compile(bar.join(re.escape(form) for form in self.forms))
        self._replacement: AnyStr = replacement
        self._hint: re.Pattern[AnyStr] = re.compile(hint)
        self._escaped: re.Pattern[AnyStr] = re.compile(bar.join(escaped))

    def replace(self, text: AnyStr) -> AnyStr:
        # Sixty searches for one form each are five times faster than one search for any of sixty.
        if any(form in text for form in self.forms):
            text = self._pattern.sub(lambda _: self._replacement, text)
        if self._escaped.pattern and self._hint.search(text):
            text = self._escaped.sub(lambda _: self._replacement, text)
        return text


class Redactor:
    """Replaces secrets in text, bytes, nested values and events.

    Args:
        values: The secrets. Blanks around them do not count.

    Attributes:
        ignored: Why a value is not looked for, one line for each; the value itself is not told.
    """

    def __init__(self, values: Iterable[str | bytes] = ()) -> None:
        self._secrets: set[bytes] = set()
        self.ignored: tuple[str, ...] = ()
        self.learn(values)

    def learn(self, values: Iterable[str | bytes]) -> None:
        """Look for further secrets from now on, such as a token that was renewed."""
        secrets, ignored = set(self._secrets), list(self.ignored)
        for value in values:
            secret = (value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value).strip()
            if len(secret) >= MINIMUM_LENGTH:
                secrets.add(secret)
            elif secret:
                ignored.append(
                    f"a secret of {len(secret)} bytes is too short to be redacted; use one of at least "
                    f"{MINIMUM_LENGTH}"
                )
        self.ignored, self._secrets = tuple(ignored), secrets
        forms = {form for secret in secrets for form in _forms(secret)}
        escaped = sorted((_escaped(secret) for secret in secrets), key=lambda form: (-len(form), form))
        in_bytes = [form.encode() for form in escaped]
        self._in_bytes = _Finder[bytes](
            forms, b"|", REPLACEMENT.encode(), hint=_HINT.encode(), escaped=in_bytes
        )
        decoded = {
            form.decode("utf-8", handler) for form in forms for handler in ("surrogateescape", "replace")
        }
        self._in_text = _Finder[str](decoded, "|", REPLACEMENT, hint=_HINT, escaped=escaped)

    def redact(self, value: T) -> T:
        """`value` without secrets; the very same object where there are none.

        Looks into strings, bytes, lists, tuples, mappings (keys too) and structs; leaves all else alone.
        """
        return cast("T", self._redact(value)) if self._in_text.forms else value

    def undecided(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a secret that goes on."""
        forms = self._in_text.forms
        longest = len(forms[0]) if forms else 0
        for start in range(max(0, len(text) - longest + 1), len(text)):
            end = text[start:]
            if any(form.startswith(end) for form in forms):
                return len(end)
        return 0

    def redact_event(self, event: E) -> E:
        """`event` without secrets; the very same object where there are none."""
        return self.redact(event)

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._in_text.replace(value)
        if isinstance(value, bytes):
            return self._in_bytes.replace(value)
        if isinstance(value, Mapping):
            pairs = [(self._redact(key), self._redact(item)) for key, item in value.items()]
            same = all(
                key is old_key and item is old
                for (key, item), (old_key, old) in zip(pairs, value.items(), strict=True)
            )
            return value if same else dict(pairs)
        if isinstance(value, list | tuple):
            items = [self._redact(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items if isinstance(value, list) else tuple(items)
        return self._in_struct(value) if isinstance(value, msgspec.Struct) else value

    def _in_struct(self, struct: msgspec.Struct) -> msgspec.Struct:
        changes = {}
        for name in struct.__struct_fields__:
            old = getattr(struct, name)
            new = self._redact(old)
            if new is not old:
                changes[name] = new
        return msgspec.structs.replace(struct, **changes) if changes else struct


def _forms(secret: bytes) -> Iterator[bytes]:
    text = secret.decode("utf-8", "surrogateescape")
    yield secret
    yield from _json_forms(text)
    for percent in {quote(secret, safe=""), quote(secret), quote_plus(secret)}:
        yield percent.encode()
        yield re.sub("%..", lambda match: match[0].lower(), percent).encode()
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for offset in range(3):
        core = _base64_core(secret, offset)
        yield core
        yield core.translate(bytes.maketrans(b"+/", b"-_"))


def _escaped(secret: bytes) -> str:
    """An expression for a secret of which any characters are escaped, each in any of the ways that are known."""
    text = secret.decode("utf-8", "replace")
    return "".join(map(_any_spelling, text))


def _any_spelling(char: str) -> str:
    percent = "".join(f"%{_hex(byte, 2)}" for byte in char.encode("utf-8", "replace"))
    octets = "".join(rf"\\{{1,4}}x{_hex(byte, 2)}" for byte in char.encode("utf-8", "replace"))
    wide = char.encode("utf-16-be", "replace")
    units = [int.from_bytes(wide[start : start + 2]) for start in range(0, len(wide), 2)]
    unicode = "".join(rf"\\{{1,4}}u{_hex(unit, 4)}" for unit in units)
    plain = rf"\\{{0,4}}{re.escape(char)}" if char in "\"'/" else re.escape(char)
    return f"(?:{plain}|{percent}|{octets}|{unicode})"


def _hex(value: int, digits: int) -> str:
    """A number in hexadecimal, its letters in either case."""
    return "".join(
        f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{value:0{digits}x}"
    )


def _json_forms(text: str) -> Iterator[bytes]:
    for ascii_only in (False, True):
        once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        twice = json.dumps(once, ensure_ascii=ascii_only)[1:-1]
        for form in (once, twice, once.replace("/", "\\/")):
            yield form.encode("utf-8", "surrogateescape")


def _base64_core(secret: bytes, offset: int) -> bytes:
    """The letters of a base64 text that depend on nothing but the secret, which starts at 3n + offset."""
    encoded = base64.b64encode(b"\0" * offset + secret)
    first = -(-8 * offset // 6)
    return encoded[first : 8 * (offset + len(secret)) // 6]
