"""Agent text on a terminal."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.escape import safe_json, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("done\rfail", r"done\x0dfail"),
        ("a\u202eb", r"a\u202eb"),
        ("a\u2066b", r"a\u2066b"),
        ("a\u200bb", r"a\u200bb"),
        ("a\U000e0041b", r"a\U000e0041b"),
        ("a\ud800b", r"a\ud800b"),
        ("a\u2028b", r"a\u2028b"),
        ("a\u3164b", r"a\u3164b"),
        ("a\U000e0100b", r"a\U000e0100b"),
    ],
    ids="ansi title c1 return override isolate zero-width tag surrogate separator filler selector".split(),  # noqa: SIM905
)
def test_what_acts_or_hides_is_spelled_out(text: str, shown: str) -> None:
    """Escape sequences, direction overrides and invisible characters are shown by their codes."""
    assert visible(text) == shown


@pytest.mark.parametrize("text", ["line\n\tnext", "naïve Ωμέγα 日本 ✅ ❤️", "a\u00a0b", "[bold]x[/bold]"])
def test_plain_text_is_left_alone(text: str) -> None:
    """Letters of any script, emoji, newlines and tabs stay as they are."""
    assert visible(text) == text


def test_one_line_stays_one_line() -> None:
    """Where a text must not break its line, newlines and tabs are spelled out too."""
    assert visible("a\nb\tc", one_line=True) == r"a\nb\tc"


@given(text=st.text(alphabet=st.characters(exclude_categories=[])))
def test_nothing_active_remains(text: str) -> None:
    """Whatever goes in, only printable characters, spaces, newlines and tabs come out."""
    for character in visible(text):
        assert character in "\n\t" or unicodedata.category(character)[0] in "LMNPSZ"


@given(text=st.text())
def test_json_is_ascii_and_the_same_data(text: str) -> None:
    """JSON for programs is plain printable ASCII and decodes to what it was."""
    encoded = safe_json({text: [text]})
    assert encoded.isascii()
    assert encoded.isprintable()
    assert json.loads(encoded) == {text: [text]}
