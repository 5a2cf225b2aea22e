"""Removes secrets from everything that is recorded or displayed: each occurrence of a value is replaced.

A `Redactor` finds the value itself and the forms in which programs usually print it: JSON-escaped (once or twice),
percent-encoded, with any of its characters escaped by a percent sign or by a backslash with `u` or `x`, hexadecimal,
base64 (standard and URL-safe, at each of the three alignments it can have inside a longer text). A `StreamRedactor`
finds each of them across the pieces of a stream, too. Neither finds a value that is compressed, encrypted, or spelled
out of order. Redaction is the second line of defence; the first is that secrets do not enter the sandbox.

`redact_shapes` is for texts whose secrets are not known by value: it removes everything that is recognizable as a key or
a token. It cannot recognize a password in a sentence.
"""

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, AnyStr, Generic, TypeVar, cast
from urllib.parse import quote, quote_plus, unquote, urlsplit

import msgspec

from ringfence.config.secret_shape import KNOWN_SHAPES

MINIMUM_LENGTH = 8
"""Shorter values are not searched for: they occur in ordinary text, and the replacements would reveal them."""

REPLACEMENT = "[redacted]"

_HINT = r"%[0-9a-fA-F]{2}|\\[ux][0-9a-fA-F]{2}"
"""Only a text that contains an escape is searched for a secret with escaped characters."""

_CUT_ESCAPE = re.compile(
    r"(?:%[0-9a-fA-F]{2}|\\{1,4}(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})){0,3}"
    r"(?:%[0-9a-fA-F]?|\\{1,4}(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?)?"
)
"""Matches any beginning of one escaped character, which takes up to four escapes; also the empty text."""

_ESCAPED_CHARS, _ESCAPED_WIDE_CHARS = 9, 28
"""The lengths of the longest escaped spelling of an ASCII character, and of any other character."""

_SECRET_WORDS = frozenset(
    [
        "KEY",
        "KEYS",
        "TOKENS",
        "SECRETS",
        "PASS",
        "PWD",
        "PASSWORDS",
        "CREDENTIAL",
        "CREDENTIALS",
        "PAT",
        "COOKIE",
    ]
)
_SECRET_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
_HARMLESS_ENDINGS = ("_FILE", "_PATH", "_DIR", "_SOCK", "_PID", "_TYPE", "_FILE_DESCRIPTOR")
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK"})

_SHAPE = (
    rf"-----BEGIN [A-Z ]{{0,30}}PRIVATE KEY-----.*?(?:-----END [A-Z ]{{0,30}}PRIVATE KEY-----|\Z)"
    rf"|(?:{KNOWN_SHAPES})[A-Za-z0-9_-]*"
)
_HEADER = (
    r"(?i)(\b(?:authorization|x-api-key)[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"'\\]{8,}"
)
_URL_USERINFO = r"(://[^\s/:@\"'\\]{0,100}:)[^\s/@\"'\\]{3,200}@"

_read_values: set[str] = set()

T = TypeVar("T")


def register_secrets(values: Iterable[str]) -> None:
    """Remember secrets that this process has read, so that no error message it prints shows them."""
    _read_values.update(values)


def registered_secrets() -> tuple[str, ...]:
    """Return every secret that this process has read from a source."""
    return tuple(_read_values)


def environment_secrets(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the values of variables whose names look secret, and the passwords in URLs of the environment.

    Args:
        environ: Used instead of `os.environ`.
    """
    environ = os.environ if environ is None else environ
    found = {value for name, value in environ.items() if looks_secret(name)}
    for name, value in environ.items():
        # The addresses of proxies are also written without a scheme.
        is_bare = name.upper().endswith("_PROXY") and "://" not in value
        found |= _url_passwords(f"http://{value}" if is_bare else value)
    return tuple(sorted(found - {""}))


def looks_secret(name: str) -> bool:
    """Whether a variable of this name usually holds a secret."""
    upper = name.upper()
    if upper in _HARMLESS_NAMES or upper.endswith(_HARMLESS_ENDINGS):
        return False
    return upper.endswith(_SECRET_ENDINGS) or not _SECRET_WORDS.isdisjoint(re.split(r"[^A-Z0-9]+", upper))


def redact_shapes(text: str, replacement: str) -> str:
    """Replace whatever looks like a key, a token, a private key or a password in a URL."""
    text = re.sub(_SHAPE, lambda _: replacement, text, flags=re.DOTALL)
    text = re.sub(_HEADER, lambda match: match[1] + replacement, text)
    return re.sub(_URL_USERINFO, lambda match: f"{match[1]}{replacement}@", text)


class _Finder(Generic[AnyStr]):
    """Replaces any of several forms of secrets, either in str or in bytes."""

    def __init__(
        self,
        forms: Iterable[AnyStr],
        bar: AnyStr,
        replacement: AnyStr,
        *,
        hint: AnyStr,
        escaped: Iterable[AnyStr] = (),
    ) -> None:
        # The longest form comes first, so that no part of it remains after a shorter one was replaced.
        self.forms: list[AnyStr] = sorted(set(forms), key=lambda form: (-len(form), form))
        self._lower_forms: list[AnyStr] = [form.lower() for form in self.forms]
        self._pattern: re.Pattern[AnyStr] = re.compile(bar.join(re.escape(form) for form in self.forms))
        self._replacement: AnyStr = replacement
        self._hint: re.Pattern[AnyStr] = re.compile(hint)
        self._escaped_regex: re.Pattern[AnyStr] = re.compile(bar.join(escaped))

    def replace(self, text: AnyStr) -> AnyStr:
        # Sixty searches for one form each are five times faster than one search for any of sixty.
        if any(form in text for form in self.forms):
            text = self._pattern.sub(lambda _: self._replacement, text)
        if self._escaped_regex.pattern and self._hint.search(text):
            text = self._escaped_regex.sub(lambda _: self._replacement, text)
        return text

    def occurs_in_any_case(self, text: AnyStr) -> bool:
        lower = text.lower()
        if any(form in lower for form in self._lower_forms):
            return True
        pattern = self._escaped_regex.pattern
        is_escaped = pattern and self._hint.search(text)
        return bool(is_escaped) and re.search(pattern, text, re.IGNORECASE) is not None


class Redactor:
    """Replaces secrets in text, bytes, nested values and events.

    Args:
        values: The secrets, without surrounding whitespace.

    Attributes:
        ignored: One line, without the value, for each value that is too short to be searched for.
    """

    def __init__(self, values: Iterable[str | bytes] = ()) -> None:
        self._secrets: set[bytes] = set()
        self.ignored: tuple[str, ...] = ()
        self._compile()
        self.learn(values)

    def learn(self, values: Iterable[str | bytes]) -> None:
        """Also search for these secrets from now on, such as a renewed token."""
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
        self.ignored = tuple(dict.fromkeys(ignored))
        if secrets != self._secrets:
            self._secrets = secrets
            self._compile()

    def _compile(self) -> None:
        forms = {form for secret in self._secrets for form in _forms(secret)}
        patterns = map(_escaped_regex, self._secrets)
        escaped = sorted(patterns, key=lambda form: (-len(form), form))
        in_bytes = [form.encode() for form in escaped]
        self._in_bytes = _Finder[bytes](
            forms, b"|", REPLACEMENT.encode(), hint=_HINT.encode(), escaped=in_bytes
        )
        decoded = {
            form.decode("utf-8", handler) for form in forms for handler in ("surrogateescape", "replace")
        }
        self._in_text = _Finder[str](decoded, "|", REPLACEMENT, hint=_HINT, escaped=escaped)

    def redact(self, value: T) -> T:
        """Return `value` without secrets; the same object if it contains none.

        Strings, bytes, lists, tuples, mappings (also their keys) and structs are searched; other values are kept as is.
        """
        return cast("T", self._redact(value)) if self._in_text.forms else value

    def is_in_name(self, name: bytes) -> bool:
        """Whether the name of a header contains a secret in any case: servers change the case of names."""
        return self._in_bytes.occurs_in_any_case(name)

    def partial_match(self, text: str) -> int:
        """Return how many characters at the end of `text` may be the beginning of a secret."""
        forms = self._in_text.forms
        longest = len(forms[0]) if forms else 0
        starts = range(max(0, len(text) - longest + 1), len(text))
        plain = next((start for start in starts if _begins_any(forms, text[start:])), len(text))
        return len(text) - min([plain, *(_escaped_start(secret, text) for secret in self._secrets)])

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


class StreamRedactor:
    """Redacts a stream of bytes; an end that may be the beginning of a secret is held until the next piece.

    Args:
        redactor: Finds the secrets; none of them contains a line end.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.held = b""
        """The held end. At the end of the stream it turns out not to be a secret."""

    def feed(self, data: bytes) -> bytes:
        """Add the next piece; return the redacted bytes that need no further input."""
        redacted = self._redactor.redact(self.held + data)
        tail = redacted[redacted.rfind(b"\n") + 1 :]
        undecided = self._redactor.partial_match(tail.decode("latin-1")) if tail else 0
        piece = redacted[: len(redacted) - undecided]
        self.held = redacted[len(piece) :]
        return piece


def _begins_any(forms: Iterable[str], text: str) -> bool:
    return any(form.startswith(text) for form in forms)


def _escaped_start(secret: bytes, text: str) -> int:
    """Return where at the end of `text` a secret with escaped characters may begin; its length if nowhere."""
    chars = secret.decode("utf-8", "replace")
    longest = sum(_ESCAPED_CHARS if char.isascii() else _ESCAPED_WIDE_CHARS for char in chars)
    first = max(0, len(text) - longest)
    if text.find("\\", first) < 0 and text.find("%", first) < 0:
        return len(text)
    return next((start for start in range(first, len(text)) if _is_cut(chars, text, start)), len(text))


def _is_cut(chars: str, text: str, start: int) -> bool:
    """Whether `text` ends within a spelling of `chars` that begins at `start`."""
    positions = {start}
    for char in chars:
        if any(_CUT_ESCAPE.fullmatch(text, position) for position in positions):
            return True
        ends = (way.match(text, position) for way in _spelling_patterns(char) for position in positions)
        positions = {match.end() for match in ends if match is not None}
        if not positions:
            break
    return False


def _url_passwords(value: str) -> set[str]:
    if "://" not in value or "@" not in value:
        return set()
    try:
        password = urlsplit(value).password
    except ValueError:
        return set()
    return {password, unquote(password)} if password else set()


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


def _escaped_regex(secret: bytes) -> str:
    """Return a regular expression for a secret any of whose characters may be escaped, each in any known way."""
    text = secret.decode("utf-8", "replace")
    return "".join(map(_spelling_regex, text))


def _spelling_regex(char: str) -> str:
    return f"(?:{'|'.join(_spellings(char))})"


@cache
def _spelling_patterns(char: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, _spellings(char)))


def _spellings(char: str) -> tuple[str, ...]:
    """Return regular expressions for a character: plain, and escaped in each known way."""
    percent = "".join(f"%{_hex(byte, 2)}" for byte in char.encode("utf-8", "replace"))
    octets = "".join(rf"\\{{1,4}}x{_hex(byte, 2)}" for byte in char.encode("utf-8", "replace"))
    wide = char.encode("utf-16-be", "replace")
    units = [int.from_bytes(wide[start : start + 2]) for start in range(0, len(wide), 2)]
    unicode = "".join(rf"\\{{1,4}}u{_hex(unit, 4)}" for unit in units)
    plain = rf"\\{{0,4}}{re.escape(char)}" if char in "\"'/" else re.escape(char)
    return plain, percent, octets, unicode


def _hex(value: int, digits: int) -> str:
    """Return a regular expression for a number in hexadecimal, with letters in either case."""
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
    """Return the base64 characters that depend only on a secret that starts at byte 3n + offset of a longer text."""
    encoded = base64.b64encode(b"\0" * offset + secret)
    first = -(-8 * offset // 6)
    return encoded[first : 8 * (offset + len(secret)) // 6]
