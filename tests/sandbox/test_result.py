"""Bounded output keeps what it says."""

import re

from hypothesis import given
from hypothesis import strategies as st

from ringfence.sandbox.result import BoundedOutput, ExecResult


@given(chunks=st.lists(st.binary(max_size=40), max_size=30), limit=st.integers(0, 60))
def test_bounded_output(chunks: list[bytes], limit: int) -> None:
    """Whatever the pieces, the head, a mark and the tail are kept; all of it where it fits."""
    output = BoundedOutput(limit)
    for chunk in chunks:
        output.add(chunk)
    data = b"".join(chunks)
    assert output.total == len(data)
    if len(data) <= limit:
        assert output.value() == data
        return
    head, tail = limit - limit // 2, limit // 2
    mark = b"\n[... %d bytes cut ...]\n" % (len(data) - limit)
    assert output.value() == data[:head] + mark + (data[-tail:] if tail else b"")


def test_memory_of_bounded_output() -> None:
    """Much output in small pieces holds no more than three times the limit."""
    output = BoundedOutput(1000)
    for _ in range(10_000):
        output.add(b"x" * 99)
        assert len(output._head) + len(output._tail) <= 2000
    assert re.search(rb"\[\.\.\. 989000 bytes cut \.\.\.\]", output.value())


def test_what_is_well() -> None:
    """Only an exit with 0 is well: not code 0 of a command that was ended."""
    result = ExecResult((), b"\xff", b"", 1, 0, 0, None, 0.0, "exit")
    assert result.ok
    assert result.stdout == "�"
    assert not ExecResult((), b"", b"", 0, 0, 0, None, 0.0, "timeout").ok
    assert not ExecResult((), b"", b"", 0, 0, 1, None, 0.0, "exit").ok
