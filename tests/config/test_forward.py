"""How a forward is written, and that each has one spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config.forward import Forward, check_forwards, read_forward

GOOD = {
    "redis:6379": ("redis", 6379, "redis", 6379, "redis:6379"),
    "Redis.Internal.:6379": ("redis.internal", 6379, "redis.internal", 6379, "redis.internal:6379"),
    "127.0.0.1:6379": (None, 6379, "127.0.0.1", 6379, "127.0.0.1:6379"),
    "localhost:6379": (None, 6379, "localhost", 6379, "localhost:6379"),
    "[::1]:6379": (None, 6379, "::1", 6379, "[::1]:6379"),
    "[0:0:0:0:0:ffff:10.0.0.5]:6379": (None, 6379, "10.0.0.5", 6379, "10.0.0.5:6379"),
    "cache=127.0.0.1:6379": ("cache", 6379, "127.0.0.1", 6379, "cache:6379=127.0.0.1:6379"),
    "web:8080=shop:80": ("web", 8080, "shop", 80, "web:8080=shop:80"),
    ":6380=redis:6379": (None, 6380, "redis", 6379, ":6380=redis:6379"),
}
BAD = {
    "redis": "is not HOST:PORT",
    ":6379": "is not HOST:PORT",
    "redis:": "a port is a number",
    "redis:0": "a port is a number",
    "redis:65536": "a port is a number",
    "redis:\u0663": "a port is a number",
    "redis:80": "privileges",
    "127.1:6379": "an unusual spelling of an address",
    "2130706433:6379": "an unusual spelling of an address",
    "0x7f000001:6379": "an unusual spelling of an address",
    "0x7f.0.0.1:6379": "an unusual spelling of an address",
    "0177.0.0.1:6379": "an unusual spelling of an address",
    "127.0.0.0x1:6379": "an unusual spelling of an address",
    "::1:6379": "without brackets",
    "[fe80::1%eth0]:6379": "one link",
    "a b:6379": "not a host name",
    "a\nb:6379": "not a host name",
    "-x:6379": "not a host name",
    "a..b:6379": "not a host name",
    "b\u00fccher:6379": "not a host name",
    "localhost=redis:6379": "means the sandbox itself",
    "10.0.0.5=redis:6379": "has an address before",
    "[fd00=redis:6379": "not a host name",
    "a=b=c:6379": "not a host name",
}


@pytest.mark.parametrize("text", GOOD)
def test_read(text: str) -> None:
    """Each way of writing a forward says what it should, and has one spelling."""
    name, port, host, target_port, spelling = GOOD[text]
    forward = Forward.model_validate(text)
    assert forward == Forward(name=name, port=port, host=host, target_port=target_port)
    assert str(forward) == spelling
    assert Forward.model_validate(spelling) == forward


@pytest.mark.parametrize("text", BAD)
def test_refused(text: str) -> None:
    """What is no forward, or hides where it leads, is refused with a reason."""
    with pytest.raises(ValueError, match=BAD[text]):
        read_forward(text)


@given(text=st.text(alphabet="ab1.:[]=x%-\0\u00e9", max_size=30))
def test_any_text(text: str) -> None:
    """Any text is a forward whose spelling means the same, or is refused."""
    try:
        forward = Forward.model_validate(text)
    except ValueError:
        return
    assert Forward.model_validate(str(forward)) == forward


@pytest.mark.parametrize(
    "texts", [("a:6379", "b:6379"), ("x:6379=a:1", "x:6380=b:1")], ids=["same port", "same name"]
)
def test_two_for_one(texts: tuple[str, ...]) -> None:
    """Two forwards that take the same port or name inside are refused."""
    with pytest.raises(ValueError, match="both use"):
        check_forwards(tuple(Forward.model_validate(text) for text in texts))
