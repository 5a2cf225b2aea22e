"""One script for several parts: which case answers which conversation."""

from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from ringfence.errors import ConfigurationError
from ringfence.testing.scripted_model import Script, ScriptedModelServer, in_prompt, parse_script

from .conftest import body

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ROLES = parse_script(
    """
cases:
  - when: ["role: tester"]
    turns: [{text: t1}, {text: t2}]
  - when: ["role: builder", "attempt: 2"]
    turns: [{text: again}]
  - when: ["role: builder"]
    turns: [{text: b1}, {text: b2}]
""",
    path=Path("s.yaml"),
)
Message = dict[str, Any]


def user(text: str) -> Message:
    """What the user says."""
    return {"role": "user", "content": text}


def model(text: str) -> Message:
    """What the model said."""
    return {"role": "assistant", "content": text}


async def ask(server: ScriptedModelServer, *messages: Message, conversation: str = "") -> tuple[int, str]:
    """Status, and the text or the error, by the Messages API."""
    headers = {"x-api-key": "any", "x-claude-code-session-id": conversation}
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
        answer = await client.post(f"{server.base_url}{MESSAGES}", json=body(*messages), headers=headers)
    reply = answer.json()
    return answer.status_code, reply["content"][0]["text"] if answer.is_success else reply["error"]["message"]


async def test_the_first_case_that_fits_answers():
    """All its texts are in the prompt, wherever they stand."""
    async with ScriptedModelServer.serve(ROLES) as server:
        answers = [
            await ask(server, user(prompt))
            for prompt in ("attempt: 2\nrole: builder", "role: builder\nattempt: 1", "x role: tester x")
        ]
    assert answers == [(200, "again"), (200, "b1"), (200, "t1")]


async def test_what_is_said_later_chooses_no_case():
    """Only the beginning does: a conversation keeps its case, and its place in it."""
    async with ScriptedModelServer.serve(ROLES) as server:
        later = await ask(server, user("role: builder"), model("b1"), user("role: tester, attempt: 2"))
        end = await ask(server, user("role: tester"), model("t1"), user("x"), model("t2"), user("x"))
    assert later == (200, "b2")
    assert end == (400, "the script 's.yaml' (its case in line 3) is exhausted after turn 2")


async def test_conversations_at_once_hold_up_none():
    """One that stalls, the others answered meanwhile."""
    script = parse_script(
        "cases: [{when: [slow], turns: [{text: x, stall: {seconds: 60, after_events: 0}}]}, {turns: [{text: quick}]}]"
    )
    async with ScriptedModelServer.serve(script) as server, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, server, user("slow"))
        answers = [await ask(server, user("hi")) for _ in range(3)]
        tasks.cancel_scope.cancel()
    assert answers == [(200, "quick")] * 3


async def test_faults_are_counted_for_each_conversation():
    """By its session and by how it begins."""
    script = parse_script("cases: [{turns: [{error: {status: 529}, text: a}]}]")
    asked = [("one", "x"), ("two", "x"), ("one", "y"), ("one", "x"), ("two", "x"), ("one", "y")]
    async with ScriptedModelServer.serve(script) as server:
        statuses = [(await ask(server, user(text), conversation=session))[0] for session, text in asked]
    assert statuses == [529, 529, 529, 200, 200, 200]


async def test_a_conversation_that_fits_no_case_is_refused():
    """With the script's file and how the conversation begins."""
    async with ScriptedModelServer.serve(ROLES) as server:
        status, message = await ask(server, user("role: nobody"))
    assert status == 400
    assert message == (
        "s.yaml: none of the 3 cases fits a conversation that begins with 'role: nobody'; "
        "add one, or a last one without 'when'"
    )


async def test_an_unmet_expectation_names_the_line_in_its_case():
    """Lines are those of the file, whichever case they belong to."""
    script = parse_script(
        "cases:\n- when: [a]\n  turns: [{text: x}]\n- turns:\n  - text: y\n  - text: z\n    expect: {system: q}"
    )
    async with ScriptedModelServer.serve(script) as server:
        status, message = await ask(server, user("b"), model("y"), user("more"))
    assert status == 400
    assert message.startswith("<script>:6: expected the system prompt")


async def test_every_api_chooses_by_the_beginning():
    """In the Responses API too, where a client's own messages come before the prompt."""
    own, prompt, other = user("<environment/>"), user("role: builder"), user("role: tester")
    asked: dict[str, Message] = {
        MESSAGES: body(prompt, model("b1"), other),
        CHAT: {"model": "m", "messages": [own, prompt, model("b1"), other]},
        RESPONSES: {
            "model": "m",
            "input": [
                own,
                prompt,
                {"role": "assistant", "content": [{"type": "output_text", "text": "b1"}]},
                other,
            ],
        },
    }
    async with ScriptedModelServer.serve(ROLES) as server:
        headers = {"authorization": "Bearer x"}
        async with httpx2.AsyncClient(base_url=server.base_url, headers=headers, trust_env=False) as client:
            replies = {path: (await client.post(path, json=given)).json() for path, given in asked.items()}
    assert replies[MESSAGES]["content"][0]["text"] == "b2"
    assert replies[CHAT]["choices"][0]["message"]["content"] == "b2"
    assert replies[RESPONSES]["output"][0]["content"][0]["text"] == "b2"


async def test_a_script_in_the_prompt_goes_before_cases():
    """It is the nearer word."""
    carried = in_prompt(parse_script("turns: [{text: carried}]"))
    async with ScriptedModelServer.serve(ROLES) as server:
        assert await ask(server, user(f"role: tester {carried}")) == (200, "carried")


async def test_cases_in_a_prompt_are_refused():
    """Written there or named there: the prompt is the case."""
    written = '<scripted-model>{"cases": [{"turns": [{"text": "x"}]}]}</scripted-model>'
    async with ScriptedModelServer.serve(named={"roles": ROLES}) as server:
        answers = [await ask(server, user(prompt)) for prompt in (written, in_prompt("roles"))]
    assert answers == [
        (400, "<prompt>: cases have no meaning in a prompt; give turns"),
        (400, "s.yaml: cases have no meaning in a prompt; give turns"),
    ]
    with pytest.raises(ValueError, match="a script with cases is for a server"):
        in_prompt(ROLES)


WRONG = {
    "turns and cases": (
        "turns: [{text: x}]\ncases: [{turns: [{text: x}]}]",
        "s.yaml:1:1: give turns or cases, one of them",
    ),
    "neither": ("price: {input: 0, output: 0}", "s.yaml:1:1: give turns or cases, one of them"),
    "no cases": ("cases: []", "s.yaml:1:8: cases: "),
    "a case without turns": ("cases:\n  - when: [x]", "s.yaml:2:5: cases.0.turns: field required"),
    "a case that says nothing": (
        "cases:\n  - turns: [{}]",
        "s.yaml:2:13: cases.0.turns.0: a turn needs a reply",
    ),
    "an unknown key": ("cases:\n  - if: [x]\n    turns: [{text: x}]", "s.yaml:2:5: cases.0.if: no such key"),
    "a text that is none": (
        "cases:\n  - when:\n    - role: x\n    turns: [{text: x}]",
        "s.yaml:3:7: cases.0.when.0: a text with a colon needs quotes round it",
    ),
    "an empty text": (
        "cases: [{when: [''], turns: [{text: x}]}]",
        "s.yaml:1:17: cases.0.when.0: string should",
    ),
    "a case behind one that fits all": (
        "cases:\n  - turns: [{text: x}]\n  - when: [a]\n    turns: [{text: x}]",
        "s.yaml:3:5: cases.1: never reached, since cases.0 fits all that it fits",
    ),
    "a case behind one that asks less": (
        "cases:\n  - {when: [S1], turns: [{text: x}]}\n  - {when: [S10, b], turns: [{text: x}]}",
        "s.yaml:3:5: cases.1: never reached, since cases.0 fits all that it fits",
    ),
    "our own keys": ("case_lines: [1]\ncases: [{turns: [{text: x}]}]", "s.yaml:1:1: case_lines: no such key"),
}


@pytest.mark.parametrize(("text", "complaint"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_reported_with_its_place(text: str, complaint: str):
    """File, line, column, what is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        parse_script(text, path=Path("s.yaml"))
    assert complaint in str(caught.value)


def test_a_turn_of_a_case_that_cannot_be_sent_is_found():
    """As among plain turns, with its line."""
    with pytest.raises(ConfigurationError, match=r"s\.yaml:3:7: the turn cannot be sent as JSON"):
        parse_script("cases:\n  - turns:\n    - tools: [{name: x, input: {a: .nan}}]", path=Path("s.yaml"))


def test_a_case_knows_the_lines_of_its_turns():
    """Those before it belong to others."""
    script = parse_script("cases:\n- turns:\n  - text: a\n  - text: b\n  when: [x]\n- turns:\n  - text: c")
    assert isinstance(script, Script)
    first, second = (script.of_case(index).source.lines for index in (0, 1))
    assert (script.source.case_lines, first, second) == ((2, 6), (3, 4), (7,))
