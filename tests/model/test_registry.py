import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.errors import AuthenticationFailed, ConfigurationError, UsageError
from ringfence.events import Event, Usage
from ringfence.model import ModelRequest, Price, cost, needs_credential, open_model, warm_up
from ringfence.secret import Credential


async def ignore(event: Event) -> None:
    """Takes any event."""


def asking(name: str) -> ModelRequest:
    """A short request."""
    return ModelRequest(name, "", ({"role": "user", "content": "hi"},))


async def test_a_script_is_a_model(tmp_path: Path):
    """`scripted:FILE` needs no credential and answers over HTTP."""
    script = tmp_path / "script.yaml"
    script.write_text("turns:\n  - text: hello\nprice: {input: 1, output: 2}\n")
    async with open_model(f"scripted:{script}") as opened:
        reply = await opened.model.reply(asking(opened.name), ignore)
        assert opened.prices == {"scripted": Price(input=1, output=2)}
    assert reply.content == ({"type": "text", "text": "hello"},)
    assert reply.model == opened.name == "scripted"
    assert cost(opened.name, Usage(input_tokens=1_000_000), opened.prices) == 1.0


async def test_a_script_with_cases_is_a_model(tmp_path: Path):
    """The prompt chooses the case."""
    script = tmp_path / "script.yaml"
    script.write_text(
        "cases:\n- when: [other]\n  turns: [{text: no}]\n- when: [hi]\n  turns: [{text: yes it is}]\n"
    )
    async with open_model(f"scripted:{script}") as opened:
        reply = await opened.model.reply(asking(opened.name), ignore)
    assert reply.content == ({"type": "text", "text": "yes it is"},)


async def test_a_script_without_a_price_has_none(tmp_path: Path):
    """No price is made up."""
    script = tmp_path / "script.jsonl"
    script.write_text('{"text": "hello"}\n')
    async with open_model(f"scripted:{script}") as opened:
        assert cost(opened.name, Usage(input_tokens=1), opened.prices) is None


async def test_a_script_that_is_not_there_is_a_clear_error(tmp_path: Path):
    """It names the file."""
    with pytest.raises(ConfigurationError, match=r"absent\.yaml: cannot read the script: No such file"):
        async with open_model(f"scripted:{tmp_path / 'absent.yaml'}"):
            pass


async def test_without_a_credential_the_three_ways_are_named():
    """The user learns what to set."""
    with pytest.raises(
        AuthenticationFailed, match=r"ANTHROPIC_API_KEY.*ANTHROPIC_AUTH_TOKEN.*CLAUDE_CODE_OAUTH"
    ):
        async with open_model("claude-sonnet-5-5"):
            pass


@pytest.mark.parametrize("name", ["", "scripted:"])
async def test_a_name_that_is_none_is_refused(name: str):
    """It says what a name looks like."""
    with pytest.raises(UsageError, match="scripted:FILE"):
        async with open_model(name):
            pass


async def test_an_error_inside_comes_out_as_it_is(tmp_path: Path):
    """No exception group round the caller's own error."""
    script = tmp_path / "script.yaml"
    script.write_text("turns: [{text: x}]")
    with pytest.raises(KeyError, match="mine"):
        async with open_model(f"scripted:{script}"):
            raise KeyError("mine")


async def test_a_real_model_opens_without_asking_anything():
    """Opening makes no request; the name stays."""
    async with open_model("claude-opus-5-5", credential=Credential("api_key", "unused-key")) as opened:
        assert opened.name == "claude-opus-5-5"
    assert needs_credential("claude-opus-5-5")
    assert not needs_credential("scripted:x")


def test_warming_up_imports_the_sdk():
    """When the thread is done the SDK is there."""
    warm_up().join(timeout=60)
    assert "anthropic.resources.messages" in sys.modules


def test_importing_the_room_imports_nothing_heavy():
    """`ringfence --help` does not pay for the SDK, pydantic or the server."""
    heavy = "anthropic", "pydantic", "starlette", "uvicorn", "httpx2", "anyio"
    code = f"import sys, ringfence.model; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
