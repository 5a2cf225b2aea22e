"""The real `codex`, configured as docs/how-to/claude-code-in-a-sandbox.md says, works wholly in the sandbox."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .conftest import Desk, Ended
from .test_claude import SECRET, call, inside, prompt_of, tree

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "claude-code-in-a-sandbox.md"
EXEC = ("exec", "--json", "--skip-git-repo-check", "-")
_PROVIDER = """
[model_providers.gate]
name = "gate"
base_url = "{url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""


def configure(desk: Desk) -> None:
    """Write the configuration of the page, and where the model is."""
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    provider = _PROVIDER.format(url=desk.environment["MODEL_URL"])
    (desk.home / "codex").mkdir()
    (desk.home / "codex" / "config.toml").write_text(
        f'model = "gpt-5.5"\nmodel_provider = "gate"\n{shown}{provider}'
    )


def results(ended: Ended) -> list[str]:
    """The output of each call that the model got."""
    assert ended.code == 0, (ended.out, ended.err)
    items = ended.requests[-1].body["input"]
    return [json.dumps(item["output"]) for item in items if item["type"].endswith("_output")]


def offered(ended: Ended) -> set[str]:
    """The tools in all requests to the model."""
    asked: list[Any] = [request.body for request in ended.requests if request.body]
    return {tool.get("name") or tool["type"] for body in asked for tool in body.get("tools", ())}


async def test_it_works_in_the_sandbox(desk: Desk):
    """Its shell is gone and its patches are refused; the work is done inside, and the record holds and shows it."""
    configure(desk)
    (desk.project / "secret.txt").write_text(SECRET)
    before = tree(desk.project)
    patch = "*** Begin Patch\n*** Add File: pwned\n+x\n*** End Patch\n"
    ended = await desk.start(
        "codex",
        *EXEC,
        prompt=prompt_of(
            call("exec_command", cmd="echo pwned > pwned; cat secret.txt"),
            call("apply_patch", input=patch),
            call("mcp__ringfence__sandbox_open"),
            inside("file_write", path="made.txt", text="made inside\n"),
            inside("command_run", command="cat note.txt made.txt; echo two >> note.txt"),
            inside("changes_diff"),
            inside("sandbox_close"),
        ),
    )
    shell, patched, _, _, ran, diff, _ = results(ended)
    assert "unsupported call: exec_command" in shell
    assert "patch rejected" in patched
    assert "made inside" in ran
    assert "+two" in diff
    assert not offered(ended) & {"exec_command", "shell", "write_stdin", "web_search"}
    assert SECRET not in json.dumps([request.body for request in ended.requests])
    assert tree(desk.project) == before
    ((status, text),) = desk.records()
    assert status == "sealed"
    assert "cat note.txt made.txt" in text
