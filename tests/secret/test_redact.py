"""No secret stands in what is recorded."""

import base64
import json
import re
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.events import AnyEvent, ModelReplied, TextStreamed, ToolCalled, ToolReturned, Usage
from ringfence.secret import Redactor, StreamRedactor

SECRET = 'sk-ant/api03+"Zm9v"=\\x ü%1'


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(SECRET, id="itself"),
        pytest.param(json.dumps(SECRET), id="json"),
        pytest.param(json.dumps(SECRET, ensure_ascii=False), id="json in unicode"),
        pytest.param(json.dumps(json.dumps({"key": SECRET})), id="json in json"),
        pytest.param(json.dumps(SECRET).replace("/", "\\/"), id="json with escaped slash"),
        pytest.param(quote(SECRET, safe=""), id="percent"),
        pytest.param(quote(SECRET), id="percent but slash"),
        pytest.param(quote_plus(SECRET), id="form"),
        pytest.param(
            re.sub("%..", lambda match: match[0].lower(), quote(SECRET, safe="")), id="percent in lower case"
        ),
        pytest.param(SECRET.encode().hex(), id="hex"),
        pytest.param(SECRET.encode().hex().upper(), id="HEX"),
    ],
)
def test_printed_forms_are_found(form: str) -> None:
    """A secret is found however a program prints it."""
    shown = Redactor([SECRET]).redact(f"before {form} after")
    assert "[redacted]" in shown
    assert form.strip('"') not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


SPELLINGS = [
    lambda char: char,
    lambda char: "".join(f"%{byte:02x}" for byte in char.encode()),
    lambda char: "".join(f"%{byte:02X}" for byte in char.encode()),
    lambda char: "".join(f"\\x{byte:02x}" for byte in char.encode()),
    lambda char: "".join(f"\\u{unit:04x}" for unit in units(char)),
    lambda char: "".join(f"\\u{unit:04X}" for unit in units(char)),
]


def units(char: str) -> list[int]:
    """A character in UTF-16."""
    wide = char.encode("utf-16-be")
    return [int.from_bytes(wide[start : start + 2]) for start in range(0, len(wide), 2)]


@given(st.lists(st.sampled_from(SPELLINGS), min_size=30, max_size=30))
def test_escaped_characters_are_found_in_any_mixture(spellings: list[Any]) -> None:
    """Whichever characters of a secret are escaped, and how, it is found in text and in bytes."""
    secret = "sk-ant-api03/Zm9v-A+b_c"
    shown = "".join(spell(char) for spell, char in zip(spellings, secret, strict=False))
    assert Redactor([secret]).redact(f"<{shown}>") == "<[redacted]>"
    assert Redactor([secret]).redact(f"<{shown}>".encode()) == b"<[redacted]>"


@given(st.lists(st.sampled_from(SPELLINGS), min_size=30, max_size=30), st.integers(1, 40))
def test_escaped_characters_are_found_in_pieces_of_a_stream(spellings: list[Any], size: int) -> None:
    """Wherever the stream is cut, and however little of it comes at once; what waits is bounded."""
    secret = "sk-ant-api03/Zm9v-A+b_c"
    shown = "".join(spell(char) for spell, char in zip(spellings, secret, strict=False))
    text = f"data: <{shown}>\n".encode()
    stream, sent = StreamRedactor(Redactor([secret])), b""
    for start in range(0, len(text), size):
        sent += stream.feed(text[start : start + size])
        assert len(stream.held) <= 9 * len(secret)
    assert sent + stream.held == b"data: <[redacted]>\n"


@pytest.mark.parametrize("spell", SPELLINGS[1:])
def test_escaped_letters_of_other_scripts_are_found(spell: Any) -> None:
    """Letters beyond ASCII, too, and those beyond the first plane."""
    secret = "geheim-schlüssel-\U0001f511"
    assert Redactor([secret]).redact("".join(map(spell, secret))) == "[redacted]"


@pytest.mark.parametrize("prefix", ["", "u", "us", "user:", "user"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_is_found_at_every_alignment(prefix: str, encode: Any) -> None:
    """`Basic dXNlcjpwYXNz` holds the password at whatever offset the user's name makes."""
    secret = "p4ssw?rd~>>ÿÿ-long-enough"
    text = encode((prefix + secret + "@tail").encode()).decode()
    assert "[redacted]" in Redactor([secret]).redact(f"Authorization: Basic {text}")


@given(
    st.binary(max_size=5),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Z"]), min_size=8, max_size=30),
    st.binary(max_size=5),
)
def test_base64_of_any_surroundings_is_found(before: bytes, secret: str, after: bytes) -> None:
    """The letters that depend on the secret only are looked for."""
    redactor = Redactor([secret])
    if redactor.ignored:
        return
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(before + secret.strip().encode() + after).decode()
        assert redactor.redact(text) != text


@given(
    st.lists(st.text('abcdefgh/+%"\\é', min_size=8, max_size=20), min_size=1, max_size=4),
    st.lists(st.text('abcdefgh/+%"\\é', max_size=10), min_size=5, max_size=5),
)
def test_no_secret_is_left_in_any_text(secrets: list[str], between: list[str]) -> None:
    """Wherever secrets stand, they are gone, and so are they in bytes."""
    text = "".join(f"{gap}|{secret}|" for gap, secret in zip(between, secrets, strict=False))
    redactor = Redactor(secrets)
    shown = redactor.redact(text)
    shown_bytes = redactor.redact(text.encode())
    assert not any(secret in shown or secret.encode() in shown_bytes for secret in secrets)


def test_text_without_secrets_is_the_same_object() -> None:
    """Nothing is copied where nothing is found."""
    value = {"a": ["text", b"bytes", {"b": ("c", 1, None)}]}
    assert Redactor([SECRET]).redact(value) is value
    assert Redactor().redact(value) is value


def test_nested_values_and_keys_are_redacted() -> None:
    """A secret hides nowhere in a structure."""
    value = {SECRET: [{"x": (SECRET, 1)}, SECRET.encode()], "same": 1.5}
    shown = Redactor([SECRET]).redact(value)
    assert shown == {"[redacted]": [{"x": ("[redacted]", 1)}, b"[redacted]"], "same": 1.5}


def test_a_longer_secret_leaves_no_tail() -> None:
    """Of two secrets that begin alike, the longer is replaced whole."""
    assert Redactor(["12345678", "12345678-tail"]).redact("x 12345678-tail y") == "x [redacted] y"


def test_blanks_around_a_secret_do_not_count() -> None:
    """A secret read from a file often ends in a line end."""
    assert Redactor(["  hunter2-hunter2\n"]).redact("=hunter2-hunter2=") == "=[redacted]="


def test_short_values_are_ignored_and_it_is_said() -> None:
    """A short value stands in innocent text; the reason does not tell it."""
    redactor = Redactor(["1234567", "", " "])
    assert redactor.redact("1234567") == "1234567"
    assert len(redactor.ignored) == 1
    assert "7 bytes" in redactor.ignored[0]
    assert "1234567" not in redactor.ignored[0]


def test_a_secret_that_is_no_text_is_found() -> None:
    """Variables can hold any bytes."""
    secret = b"\xff\xfe-secret-\x80"
    text = secret.decode("utf-8", "surrogateescape")
    redactor = Redactor([text])
    assert redactor.redact(b"<" + secret + b">") == b"<[redacted]>"
    assert redactor.redact(f"<{text}>") == "<[redacted]>"
    assert redactor.redact(f"<{secret.decode('utf-8', 'replace')}>") == "<[redacted]>"


@pytest.mark.parametrize(
    "event",
    [
        ToolCalled(call_id="1", tool="shell", arguments={"command": f"curl -H {SECRET}"}, reasoning=SECRET),
        ToolReturned(call_id="1", tool="shell", is_error=False, content=f"KEY={SECRET}", duration_ms=1.0),
        TextStreamed(text=f"the key is {SECRET}"),
        ModelReplied(
            model="m",
            message_id="1",
            content=[{"type": "text", "text": json.dumps(SECRET)}],
            stop_reason="end_turn",
            usage=Usage(input_tokens=1),
            cost_usd=None,
            duration_ms=1.0,
            request_digest="d",
        ),
    ],
    ids=lambda event: event.name,
)
def test_events_are_redacted(event: AnyEvent) -> None:
    """The written event holds no secret, and is an event of the same kind."""
    shown = Redactor([SECRET]).redact(event)
    line = msgspec.json.encode(shown)
    assert type(shown) is type(event)
    assert b"redacted" in line
    assert b"Zm9v" not in line


def test_an_event_without_secrets_is_the_same_object() -> None:
    """The common case costs no copy."""
    event = ToolCalled(call_id="1", tool="shell", arguments={"command": "ls"})
    assert Redactor([SECRET]).redact(event) is event
