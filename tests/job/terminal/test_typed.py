"""What is typed, and the Ctrl-Z in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.job.terminal import KeyboardInput


@pytest.mark.parametrize("key", [b"\x1a", b"\x1b[122;5u", b"\x1b[122;5:1u", b"\x1b[27;5;122~"])
def test_ctrl_z_is_taken_out_however_the_terminal_tells_it(key: bytes):
    """What was typed before and after it goes inside."""
    assert KeyboardInput().split(b"ab" + key + b"cd") == [b"ab", b"cd"]


def test_letting_the_key_go_is_not_pressing_it():
    """Terminals can tell both."""
    assert KeyboardInput().split(b"\x1b[122;5:3u") == [b"\x1b[122;5:3u"]


def test_one_in_pasted_text_is_text():
    """Also where the paste comes in two pieces."""
    typed = KeyboardInput()
    assert typed.split(b"\x1b[200~one\x1a") == [b"\x1b[200~one\x1a"]
    assert typed.split(b"two\x1a\x1b[201~\x1a") == [b"two\x1a\x1b[201~", b""]


@given(st.binary(max_size=60).filter(lambda data: b"\x1a" not in data and b"122" not in data))
def test_everything_else_goes_inside_as_it_is(data: bytes):
    """Byte for byte."""
    assert KeyboardInput().split(data) == [data]
