"""The real clients work in a sandbox without a network and without a key: that is what the model gateway is for."""

import os
from pathlib import Path

import anyio
import pytest

from ringfence.testing.scripted_model import Script, in_prompt, parse_script

from .conftest import KEYS, Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LOOKS_EVERYWHERE = (
    "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep zqzq[7]x >found; "
    "grep -rlsa -D skip zqzq[7]x $HOME /tmp /run /etc /dev/shm . >>found; echo searched >>found"
)
"""The pattern is written so that it does not find itself."""


def edits(new: str) -> Script:
    """A script that edits the file of the workspace and looks at what came of it."""
    return Script.model_validate(
        {
            "turns": [
                {"text": "I look.", "tools": [{"run": "cat note.txt"}]},
                {
                    "expect": {"last_tool_result": "one"},
                    "tools": [{"run": f"sed -i s/one/{new}/ note.txt && cat note.txt"}],
                },
                {"expect": {"last_tool_result": new}, "text": "Done."},
            ]
        }
    )


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_real_client_does_its_task_without_a_key(lab: Lab, workspace: Path, name: str):
    """It edits a file; each request reaches the API with the real key, which the client never had."""
    ended = await lab.run(name, f"Say two. {in_prompt(edits('two'))}", workspace, **KEYS)
    assert (ended.code, ended.is_success()) == (0, True), ended
    assert (workspace / "note.txt").read_text() == "two\n"
    sent = [
        request.headers.get("x-api-key") or request.headers["authorization"].removeprefix("Bearer ")
        for request in lab.server.requests
    ]
    assert sent == [KEYS["ANTHROPIC_API_KEY" if name == "claude" else "OPENAI_API_KEY"]] * 3


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_the_key_is_nowhere_inside(lab: Lab, workspace: Path, name: str):
    """Not in an environment, a command line or a file that the agent can read; nor in the record outside."""
    script = Script.model_validate({"turns": [{"tools": [{"run": LOOKS_EVERYWHERE}]}, {"text": "Done."}]})
    ended = await lab.run(name, in_prompt(script), workspace, **KEYS)
    assert (ended.code, ended.is_success()) == (0, True), ended
    assert (workspace / "found").read_text() == "searched\n"
    keys = [key.encode() for key in KEYS.values()]
    kept = [path for path in sorted(lab.state.rglob("*")) if path.is_file()]
    assert kept
    assert [path for path in kept if any(key in path.read_bytes() for key in keys)] == []


async def test_claude_may_take_the_socket(lab: Lab, workspace: Path):
    """Where a client knows sockets, the gateway's serves as well as its port."""
    socket = ("--env", "ANTHROPIC_UNIX_SOCKET=/tmp/.ringfence/model.sock")
    ended = await lab.run("claude", in_prompt(edits("two")), workspace, *socket, **KEYS)
    assert (ended.code, ended.is_success()) == (0, True), ended
    assert (workspace / "note.txt").read_text() == "two\n"


async def test_claude_asks_as_a_subscriber_with_a_token_that_it_does_not_have(lab: Lab, workspace: Path):
    """The subscription's token is added outside, with the header that goes with it."""
    token = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-zqzq7x-91b2"}
    ended = await lab.run("claude", in_prompt(edits("two")), workspace, **token)
    assert (ended.code, ended.is_success()) == (0, True), ended
    asked = lab.server.requests[0].headers
    assert asked["authorization"] == f"Bearer {token['CLAUDE_CODE_OAUTH_TOKEN']}"
    assert "oauth-2025-04-20" in asked["anthropic-beta"]


async def test_codex_works_by_functions_too(lab: Lab, workspace: Path):
    """Its models differ in how tools are offered; the gateway passes both ways."""
    ended = await lab.run("codex", in_prompt(edits("two")), workspace, "--env", "MORE=-m gpt-5.5", **KEYS)
    assert (ended.code, ended.is_success()) == (0, True), ended
    assert (workspace / "note.txt").read_text() == "two\n"


async def test_codex_finds_the_gateway_by_its_own_provider_too(lab: Lab, workspace: Path):
    """It would rather have a WebSocket, is told at once that there is none, and takes plain requests."""
    ended = await lab.run("codex", in_prompt(edits("two")), workspace, "--env", "PROVIDER=openai", **KEYS)
    assert (ended.code, ended.is_success()) == (0, True), ended
    assert (workspace / "note.txt").read_text() == "two\n"
    assert "Reconnecting" not in ended.out


async def test_what_claude_asks_beside_its_model_does_no_harm(lab: Lab, workspace: Path):
    """Without the variable that keeps it quiet it asks for more, gets nothing of it, and works."""
    talkative = ("--env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=")
    ended = await lab.run("claude", in_prompt(edits("two")), workspace, *talkative, **KEYS)
    assert (ended.code, ended.is_success()) == (0, True), ended
    assert {(request.method, request.path) for request in lab.server.requests} == {("POST", "/v1/messages")}


FAULTS = {
    "an overload": "error: {status: 529}",
    "an error in the stream": "stream_error: {after_events: 3}",
    "a stream that breaks off": "drop: {after_events: 4}",
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_fault_of_the_api_is_got_over(lab: Lab, workspace: Path, name: str, fault: str):
    """The client understands what the gateway makes of it, and asks again."""
    turns = f"turns: [{{{fault}, tools: [{{run: 'echo two > note.txt'}}]}}, {{text: done}}]"
    ended = await lab.run(name, in_prompt(parse_script(turns)), workspace, **KEYS)
    assert (ended.code, ended.is_success()) == (0, True), ended
    assert (workspace / "note.txt").read_text() == "two\n"


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_client_that_has_used_its_tokens_ends_soon(lab: Lab, workspace: Path, name: str):
    """The limit holds from outside: it asks no more, and the run's end says which limit it was."""
    turns = [
        {"text": str(n), "tools": [{"run": "true"}], "usage": {"output_tokens": 100_000}} for n in range(9)
    ]
    script = Script.model_validate({"turns": turns})
    ended = await lab.run(name, in_prompt(script), workspace, RINGFENCE_LIMITS__TOKENS="150000", **KEYS)
    assert ended.code == 5, ended
    assert "limit" in ended.err
    assert len(lab.server.requests) < 4


async def test_many_clients_work_at_once_on_one_server(lab: Lab, tmp_path: Path):
    """Each by the script in its own prompt, in a sandbox of its own."""
    places = {
        f"{name}{number}": tmp_path / f"{name}{number}" for name in ("claude", "codex") for number in range(3)
    }
    for place in places.values():
        place.mkdir()
        (place / "note.txt").write_text("one\n")

    async def work(word: str, place: Path) -> None:
        ended = await lab.run(word[:-1], in_prompt(edits(word)), place, "--mode", "clone", **KEYS)
        assert (ended.code, ended.is_success()) == (0, True), ended

    async with anyio.create_task_group() as tasks:
        for word, place in places.items():
            tasks.start_soon(work, word, place)
    said = [str(request.body) for request in lab.server.requests]
    assert {word: sum(f"s/one/{word}/" in body for body in said) for word in places} == dict.fromkeys(
        places, 3
    )


async def test_a_script_on_the_host_answers_both(lab: Lab, workspace: Path, tmp_path: Path):
    """`scripted:FILE` needs neither key nor server: codex is answered by it as claude is."""
    file = tmp_path / "edits.yaml"
    file.write_text("turns: [{tools: [{run: 'echo two > note.txt'}]}, {text: done}]")
    for name in ("claude", "codex"):
        (workspace / "note.txt").unlink()
        ended = await lab.run(name, "go", workspace, RINGFENCE_MODEL=f"scripted:{file}")
        assert (ended.code, ended.is_success()) == (0, True), ended
        assert (workspace / "note.txt").read_text() == "two\n"
    assert lab.server.requests == []
    assert not os.environ.get("ANTHROPIC_API_KEY")
