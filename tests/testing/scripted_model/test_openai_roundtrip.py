"""Any turn comes out of the streams of OpenAI's APIs as it went in."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.model.scripted.chat import CHAT
from ringfence.model.scripted.dialect import Dialect
from ringfence.model.scripted.responses import RESPONSES
from ringfence.testing.scripted_model import Turn

from .test_roundtrip import turns

Item = dict[str, Any]


def heard(dialect: Dialect, turn: Turn, request: Item, chunk: int) -> Iterator[Item]:
    """What the SDK's decoder makes of a turn, its bytes cut into chunks."""
    from openai._streaming import SSEDecoder

    reply = dialect.reply(turn, dialect.parse(request), "1")
    stream = b"".join(dialect.frames(dialect.reply_body(reply), reply))
    pieces = (stream[at : at + chunk] for at in range(0, len(stream), chunk))
    for event in SSEDecoder().iter_bytes(pieces):
        if event.data != "[DONE]":
            yield event.json()


def joined(events: Iterable[Item], kind: str) -> list[str]:
    """The deltas of a kind, joined for each item that has some."""
    found: dict[int, str] = {}
    for event in events:
        if event["type"] == kind:
            found[event["output_index"]] = found.get(event["output_index"], "") + event["delta"]
    return list(found.values())


@pytest.mark.slow
@settings(deadline=None)  # the first example imports the SDK
@given(turns, st.integers(1, 50))
def test_a_response_comes_out_as_it_went_in(given_turn: Item, chunk: int):
    """The pieces add up to the items that are done, and those to the response at the end."""
    turn = Turn.model_validate(given_turn)
    events = list(heard(RESPONSES, turn, {"model": "m", "input": "x"}, chunk))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    texts = [item["content"][0]["text"] for item in done if item["type"] == "message"]
    arguments = [item["arguments"] for item in done if item["type"] == "function_call"]
    assert joined(events, "response.output_text.delta") == texts == [given_turn["text"]]
    assert joined(events, "response.function_call_arguments.delta") == arguments
    assert [json.loads(text) for text in arguments] == [call["input"] for call in given_turn["tools"]]


@settings(deadline=None)
@given(turns, st.integers(1, 50))
def test_a_completion_comes_out_as_it_went_in(given_turn: Item, chunk: int):
    """The chunks add up to the text and the arguments of each call."""
    turn = Turn.model_validate(given_turn)
    request = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    deltas = [event["choices"][0]["delta"] for event in heard(CHAT, turn, request, chunk)]
    calls: dict[int, str] = {}
    for call in [call for delta in deltas for call in delta.get("tool_calls", [])]:
        calls[call["index"]] = calls.get(call["index"], "") + call["function"]["arguments"]
    assert "".join(delta.get("content") or "" for delta in deltas) == given_turn["text"]
    assert [json.loads(text) for text in calls.values()] == [call["input"] for call in given_turn["tools"]]
