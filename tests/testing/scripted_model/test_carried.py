"""Scripts that travel in the prompt."""

from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.model.scripted.dialect import ParsedRequest, Utterance
from ringfence.model.scripted.progress import CarriedScripts
from ringfence.testing.scripted_model import Script, ScriptedModelServer, in_prompt, parse_script

from .conftest import body

THREE = parse_script("turns: [{text: a}, {text: b}, {text: c}]")
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
Message = dict[str, Any]


def user(text: str) -> Message:
    """What the user says."""
    return {"role": "user", "content": text}


def model(text: str) -> Message:
    """What the model said."""
    return {"role": "assistant", "content": text}


class Client:
    """Asks by the Messages API."""

    def __init__(self, server: ScriptedModelServer, conversation: str = "") -> None:
        self._url = f"{server.base_url}{MESSAGES}"
        self._headers = {"x-api-key": "any", "x-claude-code-session-id": conversation}

    async def ask(self, *messages: Message) -> tuple[int, str]:
        """Status, and the text or the error."""
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            answer = await client.post(self._url, json=body(*messages), headers=self._headers)
        reply = answer.json()
        return answer.status_code, reply["content"][0]["text"] if answer.is_success else reply["error"][
            "message"
        ]


async def test_the_conversation_tells_which_turn_is_due():
    """Resumed, forked or asked twice: as many turns are over as the model has spoken."""
    start = user(f"go {in_prompt(THREE)}")
    async with ScriptedModelServer.serve() as server:
        client = Client(server)
        forked = [start, model("a"), user("more")]
        answers = [
            await client.ask(*asked) for asked in ([start], forked, forked, [*forked, model("b"), user("x")])
        ]
        end = await client.ask(*forked, model("b"), user("x"), model("c"), user("x"))
    assert answers == [(200, "a"), (200, "b"), (200, "b"), (200, "c")]
    assert end == (400, "the script '<prompt>' is exhausted after turn 3")


@pytest.mark.slow
async def test_many_conversations_at_once_go_their_own_way():
    """Twenty on one server, each with a script of its own; one that stalls holds up none."""
    stalled = parse_script("turns: [{text: x, stall: {seconds: 60, after_events: 0}}]")
    got: dict[int, list[str]] = {}

    async def converse(number: int, client: Client) -> None:
        script = Script.model_validate({"turns": [{"text": f"{number}-{turn}"} for turn in range(5)]})
        messages = [user(in_prompt(script))]
        for _ in range(5):
            _, text = await client.ask(*messages)
            messages += [model(text), user("go on")]
        got[number] = [message["content"] for message in messages if message["role"] == "assistant"]

    async with ScriptedModelServer.serve() as server, anyio.create_task_group() as tasks:
        tasks.start_soon(Client(server).ask, user(in_prompt(stalled)))
        async with anyio.create_task_group() as conversations:
            for number in range(20):
                conversations.start_soon(converse, number, Client(server))
        tasks.cancel_scope.cancel()
    assert got == {number: [f"{number}-{turn}" for turn in range(5)] for number in range(20)}


async def test_faults_are_counted_for_each_conversation():
    """Equal prompts of two clients do not use up each other's faults."""
    script = parse_script(
        "turns: [{error: {status: 404}}, {error: {status: 529, times: 2}, text: a}, {error: {status: 403}}]"
    )
    start = user(in_prompt(script))
    async with ScriptedModelServer.serve() as server:
        first, second = Client(server, "one"), Client(server, "two")
        statuses = [(await client.ask(start))[0] for client in (first, first, second, first, first, second)]
        last = [(await first.ask(start, model("a"), user("x")))[0] for _ in range(2)]
    assert statuses == [404, 529, 404, 529, 200, 529]
    assert last == [403, 400]


async def test_the_last_mark_counts():
    """A new prompt may bring a new script, which begins with its first turn."""
    other = parse_script("turns: [{text: other}]")
    asked = [user(in_prompt(THREE)), model("a"), user(in_prompt(other))]
    async with ScriptedModelServer.serve() as server:
        assert await Client(server).ask(*asked) == (200, "other")


async def test_a_mark_outside_the_users_words_is_none():
    """Files and the model itself may hold such text: only prompts are listened to."""
    mark = in_prompt(parse_script("turns: [{text: mine}]"))
    call = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": mark}
    async with ScriptedModelServer.serve(parse_script("turns: [{text: own}]")) as server:
        said: Message = {"role": "assistant", "content": [{"type": "text", "text": mark}, call]}
        answer = await Client(server).ask(user("hi"), said, {"role": "user", "content": [result]})
    assert answer == (200, "own")


async def test_a_prompt_may_name_a_script_of_the_server():
    """Names are looked up among those given at the start, never on disk."""
    async with ScriptedModelServer.serve(named={"three": THREE}) as server:
        assert await Client(server).ask(user(in_prompt("three"))) == (200, "a")
        status, message = await Client(server).ask(user(in_prompt("../three")))
    assert (status, message) == (400, "<prompt>: there is no script '../three'; known are: three")


async def test_a_mistake_in_a_carried_script_is_reported_with_its_place():
    """Line and column within the mark."""
    async with ScriptedModelServer.serve() as server:
        status, message = await Client(server).ask(
            user("<scripted-model>turns:\n  - txt: x\n</scripted-model>")
        )
    assert status == 400
    assert message.startswith("<prompt>:2:5: turns.0.txt: no such key")


async def test_without_any_script_the_way_out_is_told():
    """Neither in the prompt nor on the server."""
    async with ScriptedModelServer.serve() as server:
        status, message = await Client(server).ask(user("hi"))
    assert status == 400
    assert "put one between <scripted-model> and </scripted-model>" in message


async def test_one_script_speaks_every_api():
    """The same prompt is answered by all three, each in its form."""
    prompt = in_prompt(THREE)
    asked: dict[str, Message] = {
        MESSAGES: body(user(prompt)),
        CHAT: {"model": "m", "messages": [user(prompt)]},
        RESPONSES: {"model": "m", "input": prompt},
    }
    async with ScriptedModelServer.serve() as server:
        headers = {"authorization": "Bearer x"}
        async with httpx2.AsyncClient(base_url=server.base_url, headers=headers, trust_env=False) as client:
            replies = {path: (await client.post(path, json=given)).json() for path, given in asked.items()}
    assert replies[MESSAGES]["content"][0]["text"] == "a"
    assert replies[CHAT]["choices"][0]["message"]["content"] == "a"
    assert replies[RESPONSES]["output"][0]["content"][0]["text"] == "a"


@pytest.mark.parametrize(
    ("offered", "name", "arguments"),
    [
        (["Write", "Bash"], "Bash", {"command": "ls"}),
        (["exec_command"], "exec_command", {"cmd": "ls"}),
        (["shell", "Bash"], "shell", {"command": "ls", "reasoning": "the script requires it"}),
    ],
)
async def test_run_takes_the_tool_that_runs_commands(offered: list[str], name: str, arguments: Message):
    """One script for clients that call it differently."""
    script = parse_script("turns: [{tools: [{run: ls}]}]")
    async with ScriptedModelServer.serve(script) as server:
        asked = body(tools=[{"name": tool} for tool in offered])
        headers = {"x-api-key": "x"}
        async with httpx2.AsyncClient(base_url=server.base_url, headers=headers, trust_env=False) as client:
            call = (await client.post(MESSAGES, json=asked)).json()["content"][0]
    assert (call["name"], call["input"]) == (name, arguments)


async def test_run_without_such_a_tool_names_the_line():
    """And what was offered."""
    async with ScriptedModelServer.serve(parse_script("turns:\n  - tools: [{run: ls}]")) as server:
        status, message = await Client(server).ask(user("hi"))
    assert status == 400
    assert message.startswith("<script>:2: run needs one of the tools shell, Bash")
    assert message.endswith("and the request offers []")


TAKEN = """
turns:
  - tools: [{name: open, input: {}}]
  - tools: [{name: close, input: {now: true}, from_results: {handle: "box-[0-9a-f]+"}}]
"""


async def test_a_call_takes_a_handle_from_a_result():
    """The last result that has one counts; without any, the line is named."""
    calls: list[Message] = [
        {"type": "tool_use", "id": name, "name": "open", "input": {}} for name in ("a", "b", "c")
    ]
    texts = ("box-01", "box-02 and box-03", "nothing")
    results = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        for call, text in zip(calls, texts, strict=True)
    ]
    asked = body(user("hi"), {"role": "assistant", "content": calls}, {"role": "user", "content": results})
    script = parse_script(TAKEN)
    async with ScriptedModelServer.serve(script) as server:
        headers = {"x-api-key": "x"}
        async with httpx2.AsyncClient(base_url=server.base_url, headers=headers, trust_env=False) as client:
            await client.post(MESSAGES, json=body(user("hi")))
            call = (await client.post(MESSAGES, json=asked)).json()["content"][0]
    async with ScriptedModelServer.serve() as server:
        status, message = await Client(server).ask(user(in_prompt(script)), model("x"), user("on"))
    assert call["input"] == {"now": True, "handle": "box-02"}
    assert status == 400
    assert "expected a tool result to match 'box-[0-9a-f]+', for 'handle' of 'close'" in message


def asked_by(text: str) -> ParsedRequest:
    """A request of one prompt."""
    return ParsedRequest({}, (Utterance("user", text),), {}, 1)


@pytest.mark.slow
@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.text(), st.text())
def test_any_script_comes_out_of_a_prompt_as_it_went_in(texts: list[str], before: str, after: str):
    """Whatever the texts hold, the mark's own ends too."""
    texts[0] += "</scripted-model>"
    script = Script.model_validate({"turns": [{"text": text} for text in texts]})
    prompt = f"{before}{in_prompt(script)}{after}"
    found = CarriedScripts({}).find(asked_by(prompt), "")
    assert found is not None
    assert [turn.text for turn in found.script.turns] == texts


def test_a_name_that_cannot_be_one_is_refused():
    """It would not be found again."""
    with pytest.raises(ValueError, match="cannot be the name of a script"):
        in_prompt('a"b')
