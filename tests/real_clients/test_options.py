"""What each option means to the real clients; the table of `runtime/options.py` says no more than holds here."""

import json
import os
import shutil
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from ringfence.events import ToolReturned, TranscriptNoted
from ringfence.runtime.agent_cli.exit_status import Ending
from ringfence.runtime.base import Session
from ringfence.runtime.codex.cli import CodexCli
from ringfence.runtime.options import Options
from ringfence.testing.scripted_model import Script, in_prompt
from ringfence.tool.base import McpServer

from .conftest import own
from .started import CLIENTS, Run, fenced

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

BOTH = pytest.mark.parametrize("name", ["claude", "codex"])
SERVER = Path(__file__).parents[1] / "tool" / "mcp_example.py"
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer"}},
    "required": ["answer"],
    "additionalProperties": False,
}


def says(*turns: dict[str, Any]) -> str:
    """A prompt whose script has these turns, and then an answer."""
    return in_prompt(Script.model_validate({"turns": [*turns, {"text": "Done."}]}))


def offered(run: Run) -> set[str]:
    """The tools in the client's first request."""
    return {tool.get("name", tool.get("type")) for tool in json.loads(run.asked[0])["tools"]}


def returned(run: Run) -> list[tuple[bool, str]]:
    """What calls gave: whether that is an error, and the text."""
    return [(back.is_error, back.content) for back in run.kept(ToolReturned)]


@BOTH
async def test_the_system_prompt_is_replaced_and_added_to(
    programs: dict[str, Path], workspace: Path, name: str
):
    """Texts of any length and with any characters reach the model."""
    own_text, more = "Speak of cucumbers. " * 8000, 'And "quote" \\ them \U0001f952'
    options = Options(cli_path=programs[name], system_prompt=own_text, system_append=more)
    async with fenced(CLIENTS[name], workspace, options=options) as fence:
        run = await fence.run(says())
        plain = await fence.run(says(), more={"system_prompt": None, "system_append": None})
    assert json.dumps(own_text)[1:-2] in run.asked[0]
    assert json.dumps(more, ensure_ascii=False)[1:-1] in run.asked[0]
    assert "cucumbers" not in plain.asked[0]


async def test_only_tools_that_are_allowed_are_offered_and_permitted(
    programs: dict[str, Path], workspace: Path
):
    """Others are not in the request, and a pattern is held to."""
    async with fenced(CLIENTS["claude"], workspace, options=Options(cli_path=programs["claude"])) as fence:
        few = await fence.run(
            says({"tools": [{"run": "cat note.txt"}]}), more={"tools_allowed": ("Bash", "Read")}
        )
        pattern = await fence.run(
            says({"tools": [{"run": "echo two > note.txt"}]}, {"tools": [{"run": "ls"}]}),
            more={"tools_allowed": ("Bash(ls:*)",)},
        )
    assert (offered(few), returned(few)) == ({"Bash", "Read"}, [(False, "one")])
    assert [is_error for is_error, _ in returned(pattern)] == [True, False]
    assert pattern.ended.ending is Ending.DENIED
    assert (workspace / "note.txt").read_text() == "one\n"


async def test_a_tool_that_is_denied_is_not_offered(programs: dict[str, Path], workspace: Path):
    """And a call of it fails, whatever else is permitted."""
    options = Options(cli_path=programs["claude"], tools_denied=("Bash",))
    async with fenced(CLIENTS["claude"], workspace, options=options) as fence:
        run = await fence.run(says({"tools": [{"name": "Bash", "input": {"command": "touch made"}}]}))
    assert "Bash" not in offered(run)
    assert [is_error for is_error, _ in returned(run)] == [True]
    assert not (workspace / "made").exists()


@pytest.mark.parametrize("model", ["gpt-6.1-sol", "gpt-5.5"])
async def test_codex_without_its_authors_tools_runs_and_writes_nothing(
    programs: dict[str, Path], workspace: Path, model: str
):
    """However they are called, alone or by its scripts, and whatever else its arguments enable."""
    patch = "*** Begin Patch\n*** Add File: written\n+x\n*** End Patch\n"
    scripts = [
        f"await tools.apply_patch({json.dumps(patch)})",
        "await tools.exec_command({cmd: 'touch ran'})",
    ]
    calls = [
        {"name": "exec_command", "input": {"cmd": "touch ran"}},
        {"name": "shell", "input": {"command": ["touch", "ran"]}},
        {"name": "shell_command", "input": {"command": "touch ran"}},
        {"name": "apply_patch", "input": {"input": patch}},
        *({"name": "exec", "input": {"input": script}} for script in scripts),
    ]
    options = Options(
        cli_path=programs["codex"], tools_denied=CodexCli.author_tools, cli_args=("--enable", "shell_tool")
    )
    async with fenced(CLIENTS["codex"], workspace, options=options) as fence:
        run = await fence.run(says(*({"tools": [call]} for call in calls)), model=model)
    assert len(run.asked) == len(calls) + 1
    assert "unsupported call: exec_command" in run.asked[-1]
    assert "patch rejected: writing is blocked" in run.asked[-1]
    assert not any((workspace / name).exists() for name in ("ran", "written"))


@pytest.mark.parametrize(
    ("mode", "done"),
    [
        ("bypass", {"written", "ran"}),
        ("accept_edits", {"written"}),
        ("plan", set()),
        ("deny", set()),
    ],
)
async def test_what_is_permitted_without_asking(
    programs: dict[str, Path], workspace: Path, mode: str, done: set[str]
):
    """Nobody is there to be asked, so what is not permitted is denied, and that is told."""
    options = Options.model_validate({"cli_path": programs["claude"], "permission_mode": mode})
    write = {"name": "Write", "input": {"file_path": str(workspace / "written"), "content": "x"}}
    async with fenced(CLIENTS["claude"], workspace, options=options) as fence:
        run = await fence.run(
            says({"tools": [write]}, {"tools": [{"run": 'python3 -c \'open("ran", "w")\''}]})
        )
    assert {name for name in ("written", "ran") if (workspace / name).exists()} == done
    assert run.ended.ending is (Ending.DONE if mode == "bypass" else Ending.DENIED)


async def test_a_file_that_a_prompt_names_is_not_put_before_it(programs: dict[str, Path], workspace: Path):
    """A prompt may hold what others wrote, a diff or an issue: what it names is for the agent's own tools to read."""
    (workspace / "note.txt").write_text("Everything is met.\n")
    async with fenced(CLIENTS["claude"], workspace, options=Options(cli_path=programs["claude"])) as fence:
        run = await fence.run(f"{says()}\n\n+ see @note.txt\n")
    assert ("+ see @note.txt" in run.asked[0], "Everything is met." in run.asked[0]) == (True, False)


@BOTH
async def test_a_server_of_tools_is_used(programs: dict[str, Path], workspace: Path, name: str):
    """It runs inside, and what its tool gives comes back."""
    (workspace / "server.py").write_bytes(SERVER.read_bytes())
    own(workspace)
    server = McpServer(name="tiny", command=("python3", "server.py"), cwd=str(workspace))
    options = Options(cli_path=programs[name], mcp_servers=(server,))
    async with fenced(CLIENTS[name], workspace, options=options) as fence:
        run = await fence.run(says({"tools": [{"name": "mcp__tiny__echo", "input": {"text": "hi"}}]}))
    assert returned(run) == [(False, "echo hi")]


@BOTH
async def test_a_server_that_does_not_start_is_told(programs: dict[str, Path], workspace: Path, name: str):
    """Claude goes on and says so in its first message; codex ends, with the server's name."""
    options = Options(cli_path=programs[name], mcp_servers=(McpServer(name="tiny", command=("false",)),))
    async with fenced(CLIENTS[name], workspace, options=options) as fence:
        run = await fence.run(says())
    told = [note.text for note in run.kept(TranscriptNoted)] if name == "claude" else [run.ended.reason]
    assert "tiny" in "".join(told)
    assert (run.ended.ending is Ending.DONE) == (name == "claude")


async def test_a_plugin_of_the_host_is_shown_inside(
    programs: dict[str, Path], workspace: Path, tmp_path: Path
):
    """Read-only, and its skills are offered to the model."""
    plugin = tmp_path / "garden"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin/plugin.json").write_text(json.dumps({"name": "garden", "version": "1.0.0"}))
    (plugin / "skills/grow").mkdir(parents=True)
    (plugin / "skills/grow/SKILL.md").write_text(
        "---\nname: grow\ndescription: grows cucumbers\n---\nGrow.\n"
    )
    for path in (plugin, *plugin.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    options = Options(cli_path=programs["claude"], plugins=(plugin,))
    async with fenced(CLIENTS["claude"], workspace, options=options) as fence:
        run = await fence.run(says())
    assert "grows cucumbers" in run.asked[0]


@BOTH
async def test_an_answer_comes_by_a_schema(programs: dict[str, Path], workspace: Path, name: str):
    """Each in its own way."""
    given = {"answer": 42}
    turns: dict[str, list[dict[str, Any]]] = {
        "claude": [{"tools": [{"name": "StructuredOutput", "input": given}]}, {"text": "Done."}],
        "codex": [{"text": json.dumps(given)}],
    }
    script = Script.model_validate({"turns": turns[name]})
    options = Options(cli_path=programs[name], output_schema=SCHEMA)
    async with fenced(CLIENTS[name], workspace, options=options) as fence:
        run = await fence.run(in_prompt(script))
    assert (run.ended.ending, run.output.report.structured_output) == (Ending.DONE, given)


@BOTH
async def test_a_session_is_resumed_and_forked(programs: dict[str, Path], workspace: Path, name: str):
    """What was said is known again; a fork has another id; the files to keep are where they are said to be."""
    chosen, forked = str(uuid.uuid4()), str(uuid.uuid4())
    async with fenced(CLIENTS[name], workspace, options=Options(cli_path=programs[name])) as fence:
        first = await fence.run(f"The word is cucumber. {says()}", session=Session(chosen))
        known = first.output.report.session_id or ""
        resumed = await fence.run(says(), session=Session(forked, resumed_id=known))
        other = await fence.run(says(), session=Session(forked, resumed_id=known, is_forked=True))
        state = CLIENTS[name].state_dir(fence.paths)
        patterns = " ".join(CLIENTS[name].session_files)
        kept = await fence.sandbox.run(["sh", "-c", f"cd {state} && ls -d {patterns} 2>/dev/null"])
    assert [run.ended.ending for run in (first, resumed, other)] == [Ending.DONE] * 3
    assert all("The word is cucumber." in "".join(run.asked) for run in (resumed, other))
    assert resumed.output.report.session_id == known != other.output.report.session_id
    assert (known == chosen, other.output.report.session_id == forked) == (
        (True, True) if name == "claude" else (False,) * 2
    )
    assert all(f"{session}.jsonl" in kept.stdout for session in (known, other.output.report.session_id))


@BOTH
async def test_an_unknown_session_is_told(programs: dict[str, Path], workspace: Path, name: str):
    """As an ending of its own, so that the run can begin anew."""
    async with fenced(CLIENTS[name], workspace, options=Options(cli_path=programs[name])) as fence:
        run = await fence.run(says(), session=Session(str(uuid.uuid4()), resumed_id=str(uuid.uuid4())))
    assert run.ended.ending is Ending.NO_SESSION


async def test_another_addition_counts_when_claude_resumes(programs: dict[str, Path], workspace: Path):
    """It would go on with what was given the first time, and say nothing."""
    chosen = str(uuid.uuid4())
    async with fenced(CLIENTS["claude"], workspace, options=Options(cli_path=programs["claude"])) as fence:
        await fence.run(says(), session=Session(chosen), more={"system_append": "Speak of peas."})
        run = await fence.run(
            says(), session=Session("", resumed_id=chosen), more={"system_append": "Speak of cucumbers."}
        )
    assert "Speak of cucumbers." in run.asked[0]
    assert "Speak of peas." not in run.asked[0]


@BOTH
async def test_a_long_prompt_arrives_whole(programs: dict[str, Path], workspace: Path, name: str):
    """Longer than any argument."""
    async with fenced(CLIENTS[name], workspace, options=Options(cli_path=programs[name])) as fence:
        run = await fence.run(f"{'x' * 300_000} cucumber {says()}")
    assert run.ended.ending is Ending.DONE
    assert f"{'x' * 300_000} cucumber" in run.asked[0]


@BOTH
async def test_a_further_argument_reaches_the_client(programs: dict[str, Path], workspace: Path, name: str):
    """As it is."""
    argument = {"claude": ("--effort", "low"), "codex": ("-c", 'model_reasoning_effort="low"')}[name]
    options = Options(cli_path=programs[name], cli_args=argument)
    async with fenced(CLIENTS[name], workspace, options=options) as fence:
        run = await fence.run(says())
    assert '"effort": "low"' in run.asked[0]


@BOTH
async def test_npms_launcher_leads_to_the_native_program(
    programs: dict[str, Path], workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """Found on PATH, without Node; what lies in the workspace is not taken, though it is first on PATH."""
    bad = workspace / "bin" / name
    bad.parent.mkdir()
    shutil.copy(sys.executable, bad)
    own(workspace)
    root = Path(os.environ["TEST_CLIENTS"])
    launcher = root / {"claude": "node_modules/@anthropic-ai/claude-code/bin/claude.exe"}.get(
        name, "node_modules/@openai/codex/bin/codex.js"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / name).symlink_to(launcher)
    monkeypatch.setenv("PATH", f"{bad.parent}:{tmp_path / 'bin'}:{os.environ['PATH']}")
    async with fenced(CLIENTS[name], workspace) as fence:
        run = await fence.run(says())
    assert run.ended.ending is Ending.DONE
    assert fence.paths.program.startswith("/ringfence/")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


async def test_codex_works_where_it_was_installed_among_its_keys(
    programs: dict[str, Path], workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """There its program alone is shown, without what lies beside it."""
    home = tmp_path / "home"
    folder = programs["codex"].parents[1]
    there = home / ".codex/packages" / folder.name
    there.parent.mkdir(parents=True)
    shutil.copytree(folder, there, copy_function=_link, ignore=lambda *_: {"codex-resources"})
    monkeypatch.setenv("HOME", str(home))
    options = Options(cli_path=there / "bin/codex")
    async with fenced(CLIENTS["codex"], workspace, options=options) as fence:
        run = await fence.run(says({"tools": [{"run": "ls ~/.codex /ringfence/codex"}]}))
    assert fence.paths.program == "/ringfence/codex/codex"
    assert run.ended.ending is Ending.DONE
    assert "auth.json" not in returned(run)[0][1]
