"""Pages of output: what a client puts together is what was written."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mcp", reason="not installed: pip install 'ringfence[mcp]'")

from ringfence.errors import UsageError
from ringfence.integrations.mcp.process import KeptOutput
from ringfence.integrations.mcp.text import encode_page

_TEXT = st.text(alphabet="aé€😀\n", max_size=40)


@given(st.lists(_TEXT, max_size=10), st.integers(4, 20))
def test_pages_of_text_make_the_text(pieces: list[str], limit: int):
    """Characters are never cut apart, wherever the pages end."""
    output = KeptOutput(10_000)
    for piece in pieces:
        output.add(piece.encode())
    found, cursor = "", 0
    while cursor < output.total:
        page = output.page(cursor, limit, is_complete=False)
        assert not page["is_replaced"]
        assert page["next_cursor"] > cursor
        found, cursor = found + page["output"], page["next_cursor"]
    assert found == "".join(pieces)


@given(st.lists(st.binary(max_size=50), max_size=10), st.integers(4, 30), st.integers(0, 600))
def test_a_cursor_gives_what_is_left_after_it(pieces: list[bytes], kept: int, cursor: int):
    """Old output is dropped and counted; a cursor beyond the end is an error; nothing is given twice."""
    output = KeptOutput(kept)
    for piece in pieces:
        output.add(piece)
    written = b"".join(pieces)
    assert output.total == len(written)
    if cursor > len(written):
        with pytest.raises(UsageError, match="beyond"):
            output.page(cursor, 1000, is_complete=True)
        return
    page = output.page(cursor, 1000, is_complete=True)
    begin = max(cursor, len(written) - kept)
    assert page["dropped_bytes"] == begin - cursor
    assert page["output"] == written[begin:].decode("utf-8", "replace")
    assert page["next_cursor"] == len(written)


@given(st.binary(max_size=200) | _TEXT.map(str.encode), st.integers(4, 50))
def test_pages_of_a_file_make_the_file(content: bytes, limit: int):
    """Each page is text or base64, says which, and loses nothing."""
    found, cursor = b"", 0
    while True:
        piece = content[cursor : cursor + limit]
        is_last = cursor + limit >= len(content)
        page, taken = encode_page(piece, is_last=is_last)
        found += page["text"].encode() if page["encoding"] == "utf-8" else base64.b64decode(page["base64"])
        assert taken > 0 or is_last
        cursor += taken
        if is_last:
            break
    assert found == content
