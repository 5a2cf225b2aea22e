from dataclasses import replace

from ringfence.model.base import ModelRequest

REQUEST = ModelRequest("m", "s", ({"role": "user", "content": "x"},), tools=({"name": "a", "b": 1},))


def test_equal_requests_have_equal_digests():
    """The order of keys does not matter."""
    other = replace(REQUEST, tools=({"b": 1, "name": "a"},))
    assert REQUEST.digest() == other.digest()
    assert len(REQUEST.digest()) == 64


def test_different_requests_have_different_digests():
    """Every part counts."""
    changes = [
        {"model": "n"},
        {"system": "t"},
        {"messages": ()},
        {"tools": ()},
        {"max_tokens": 1},
    ]
    digests = {replace(REQUEST, **change).digest() for change in changes}  # type: ignore[arg-type]
    assert len(digests | {REQUEST.digest()}) == len(changes) + 1
