"""Large bodies beside the journal."""

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.errors import RecordError
from ringfence.events import Event, MessageSent, ToolCalled, ToolReturned
from ringfence.journal import read
from ringfence.journal.blobs import BlobRef, BlobStore, pack, unpack
from ringfence.journal.record import event_of

from .conftest import MakeRun

_TEXT = st.text(max_size=20) | st.sampled_from(["$blob", "$$blob", "$blob$", "x" * 70_000, "é" * 40_000])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=8,
)


class _Memory:
    """Stands for a directory of bodies: hypothesis would fill a real one."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def store(self, body: bytes) -> str:
        digest = sha256(body).hexdigest()
        self.bodies[digest] = body
        return digest

    def load(self, ref: BlobRef) -> bytes:
        return self.bodies[ref.digest]


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(arguments=st.dictionaries(_TEXT, _JSON, max_size=4))
def test_whatever_an_agent_sends_is_read_back(arguments: dict[str, Any]) -> None:
    """Any arguments come back as they were: large ones, and ones that look like references, too."""
    memory = _Memory()
    event = ToolCalled(call_id="1", tool="t", arguments=arguments)
    data = pack(event, memory.store)
    fields = unpack(data, memory)  # type: ignore[arg-type]  # it has the two methods that are used
    back: Event = event_of("tool.called", fields)
    assert back == event


def test_a_long_text_stands_beside_the_journal(make_run: MakeRun) -> None:
    """A text of more than 64 KiB is no part of a line, is kept once, and is read back in place."""
    said = MessageSent(content="x" * 65_537)
    directory = make_run(events=[said, said])
    assert len(list((directory / "blobs").iterdir())) == 1
    assert (directory / "journal.jsonl").stat().st_size < 5000
    assert [record.event for record in read(directory)][1:3] == [said, said]


def test_many_short_texts_make_no_long_line(make_run: MakeRun) -> None:
    """An event that is large though each text in it is short is kept beside the journal whole."""
    said = MessageSent(content=[{"$blob": "x" * 60_000}] * 40)
    directory = make_run(events=[said])
    assert (directory / "journal.jsonl").stat().st_size < 5000
    assert [record.event for record in read(directory)][1] == said


def test_a_lone_surrogate_is_replaced(make_run: MakeRun) -> None:
    """Text that UTF-8 cannot hold is recorded with a replacement character, not refused."""
    returned = ToolReturned(call_id="1", tool="t", is_error=False, content="a\ud800b", duration_ms=1.0)
    events = [record.event for record in read(make_run(events=[returned]))]
    assert events[1].content == "a\ufffdb"  # type: ignore[attr-defined]  # a ToolReturned


@pytest.mark.parametrize("digest", ["../../etc/passwd", "0" * 64, ""], ids=["path", "absent", "empty"])
def test_a_reference_reaches_nothing_but_bodies(digest: str, tmp_path: Any) -> None:
    """A hostile reference is an error, and never a path."""
    with pytest.raises(RecordError):
        BlobStore(tmp_path).load(BlobRef(digest, 1, "text"))


def test_an_edited_body_is_not_read_back(make_run: MakeRun) -> None:
    """Reading refuses a body that is not what its digest says."""
    directory = make_run(events=[MessageSent(content="x" * 70_000)])
    next((directory / "blobs").iterdir()).write_bytes(b"y" * 70_000)
    with pytest.raises(RecordError, match="does not match its digest"):
        list(read(directory))


def test_a_directory_in_a_bodys_place_is_an_error(make_run: MakeRun) -> None:
    """Whatever stands where a body should be is refused as a damaged record."""
    directory = make_run(events=[MessageSent(content="x" * 70_000)])
    body = next((directory / "blobs").iterdir())
    body.unlink()
    body.mkdir()
    with pytest.raises(RecordError, match=body.name):
        list(read(directory))
