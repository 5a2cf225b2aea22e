import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.conftest import frames_of, model_of

from ringfence.events import Event
from ringfence.model.base import ModelReply, ModelRequest
from ringfence.model.stream import EventReader, ReplyAssembly
from ringfence.testing.scripted_model import Script, ScriptedModelServer, Turn

nasty = st.sampled_from(
    ["\x00", "\r\n", "\n\n", "\u2028", "\u2029", "\x85", "\x1b[2J", "data: x\n\n", "\U0001f600"]
)
text = st.lists(st.text(max_size=30) | nasty, max_size=8).map("".join)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
calls = st.fixed_dictionaries({"name": st.just("shell"), "input": st.dictionaries(text, values, max_size=4)})
turns = st.fixed_dictionaries(
    {
        "thinking": text,
        "signature": st.just("c2ln"),
        "text": text.filter(bool),
        "tools": st.lists(calls, max_size=3),
    },
    optional={"piece_chars": st.integers(1, 9)},
)


def said(reply: ModelReply) -> list[Any]:
    """What a reply says, without ids."""
    thinking, words, *tools = reply.content
    return [thinking["thinking"], thinking["signature"], words["text"], *(tool["input"] for tool in tools)]


def meant(turn: dict[str, Any]) -> list[Any]:
    """What a turn of a script says."""
    return [turn["thinking"], turn["signature"], turn["text"], *(call["input"] for call in turn["tools"])]


@pytest.mark.slow
@given(turns, st.integers(1, 50))
def test_any_turn_comes_out_of_the_stream_as_it_went_in(turn: dict[str, Any], chunk: int):
    """Through events, bytes cut anywhere and our reading of both: nothing is lost or changed."""
    stream = b"".join(frames_of(Turn.model_validate(turn)))
    reader, assembly = EventReader(), ReplyAssembly()
    for at in range(0, len(stream), chunk):
        for name, data in reader.feed(stream[at : at + chunk]):
            assembly.take(name, data)
    assert json.dumps(said(assembly.finish())) == json.dumps(meant(turn))


async def replies(script: Script) -> AsyncIterator[ModelReply]:
    """All replies of a script, over HTTP."""

    async def ignore(event: Event) -> None:
        pass

    async with ScriptedModelServer.serve(script) as server, model_of(server.base_url) as model:
        request = ModelRequest("m", "", ({"role": "user", "content": "hi"},))
        for _ in script.turns:
            yield await model.reply(request, ignore)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.lists(turns, min_size=5, max_size=10))
def test_any_script_comes_out_of_the_model_as_it_went_in(given_turns: list[dict[str, Any]]):
    """The same over a real socket, through a gateway and the model of a run."""

    async def check() -> None:
        script = Script.model_validate({"turns": given_turns})
        got = [said(reply) async for reply in replies(script)]
        assert json.dumps(got) == json.dumps([meant(turn) for turn in given_turns])

    anyio.run(check)


async def test_a_megabyte_comes_through():
    """Long text and a long tool input arrive whole."""
    long = "0123456789abcdéf\n" * 65_536
    turn = {
        "thinking": "",
        "signature": "c2ln",
        "text": long,
        "tools": [{"name": "write", "input": {"content": long}}],
    }
    async for reply in replies(Script.model_validate({"turns": [turn]})):
        assert said(reply) == meant(turn)
