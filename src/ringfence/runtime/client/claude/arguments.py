"""What of a task becomes which argument of `claude`, and which arguments are not a person's to give."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ringfence.errors import UsageError
from ringfence.runtime.base import Session, Task
from ringfence.runtime.client.base import Place
from ringfence.runtime.client.claude.tools import names_in
from ringfence.runtime.options import Options
from ringfence.tool.mcp_server import McpServer

_MOST_BYTES = 100_000
"""Of one argument; the kernel refuses 128 KiB."""
_MODES = {"bypass": "bypassPermissions", "accept_edits": "acceptEdits", "plan": "plan", "deny": "dontAsk"}
_SKIP = "--dangerously-skip-permissions"
_OURS = {
    "--output-format": "the output is read by ringfence",
    "--input-format": "the prompt comes by ringfence",
    "--replay-user-messages": "the prompt comes by ringfence",
    "--permission-prompt-tool": "nobody is there to be asked",
    "--permission-prompts": "nobody is there to be asked",
    "--permission-mode": "use the option permission_mode",
    "--setting-sources": "use the option settings_sources",
    "--session-id": "ringfence chooses it",
    "--resume": "use `ringfence run --continue`",
    "-r": "use `ringfence run --continue`",
    "--continue": "use `ringfence run --continue`",
    "-c": "use `ringfence run --continue`",
    "--fork-session": "use `ringfence run --fork`",
    "--no-session-persistence": "the session is kept for its continuation",
    "--model": "use --model of ringfence",
}
_OUTSIDE = {
    "--bg": "a session in the background ends with its sandbox",
    "--background": "a session in the background ends with its sandbox",
    "--cloud": "it runs elsewhere, outside of the fence",
    "--environment": "it runs elsewhere, outside of the fence",
    "--teleport": "it comes from elsewhere, outside of the fence",
    "--remote-control": "it is steered from outside of the fence",
    "--desktop": "the program is not in the fence",
    "--chrome": "the browser is not in the fence",
    "--ide": "the editor is not in the fence",
}
_COMMANDS_OUTSIDE = {
    "auth": "credentials stay outside; set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN before you start it",
    "setup-token": "credentials stay outside; run it outside of the fence",
    "install": "the program is shown inside read-only; run it outside of the fence",
    "update": "the program is shown inside read-only; run it outside of the fence",
    "upgrade": "the program is shown inside read-only; run it outside of the fence",
    "gateway": "it needs a network of its own",
    "ultrareview": "it runs elsewhere, outside of the fence",
    "remote-control": "it is steered from outside of the fence",
}
_WITH_VALUE = "dnrw"
_COMMANDS_INSIDE = frozenset({
    "agents", "attach", "auto-mode", "doctor", "import", "logs", "mcp", "plugin", "plugins", "purge", "respawn",
    "rm", "stop", "kill",
})  # fmt: skip


def check_unattended(args: Sequence[str]) -> None:
    """See that a task's own arguments leave ringfence's in force.

    Raises:
        UsageError: One does not.
    """
    _check(args, {**_OURS, **_OUTSIDE})


def check_own(args: Sequence[str]) -> bool:
    """See that a person's arguments make sense in the fence; whether they begin with a command of the program.

    Raises:
        UsageError: They do not.
    """
    first = args[0] if args else ""
    if first in _COMMANDS_OUTSIDE:
        raise UsageError(f"`claude {first}` does not work inside: {_COMMANDS_OUTSIDE[first]}")
    _check(args, _OUTSIDE)
    return first in _COMMANDS_INSIDE


def _check(args: Sequence[str], refused: Mapping[str, str]) -> None:
    for before, word in zip(("", *args), args, strict=False):
        if word == "--" and not before.startswith("-"):  # after a flag it may be that one's value
            return
        for name in _flags(word):
            if name in refused:
                raise UsageError(f"the argument {name!r} of claude is refused: {refused[name]}; leave it out")


def _flags(word: str) -> Iterator[str]:
    """The flags that a word holds: short ones can stand in one, up to one that takes a value."""
    if word.startswith("--") or not word.startswith("-"):
        yield word.partition("=")[0]
        return
    for letter in word[1:]:
        yield f"-{letter}"
        if letter in _WITH_VALUE:
            return


def option_arguments(
    task: Task, place: Place, state_dir: str
) -> tuple[list[str], dict[str, bytes], dict[str, str]]:
    """Arguments, files and variables that a task comes to.

    Raises:
        UsageError: The schema is too long for an argument, or a pattern of tools would not count.
    """
    options = task.options
    files: dict[str, bytes] = {}
    env: dict[str, str] = {}
    arguments = [f"--model={task.model}"]
    arguments += _settings(options, env)
    arguments += _permissions(options, is_fence=place.is_fence)
    for flag, text in (
        ("--system-prompt-file", options.system_prompt),
        ("--append-system-prompt-file", options.system_append),
    ):
        if text is not None:
            path = f"{state_dir}/ringfence/{flag.strip('-')}.md"
            files[path] = text.encode("utf-8", "replace")
            arguments.append(f"{flag}={path}")
    if options.mcp_servers:
        path = f"{state_dir}/ringfence/mcp.json"
        files[path] = _mcp(options.mcp_servers)
        arguments.append(f"--mcp-config={path}")
        env |= _patience(options.mcp_servers)
    arguments += [f"--plugin-dir={plugin}" for plugin in options.plugins]
    if options.output_schema is not None:
        arguments.append(f"--json-schema={_schema(options.output_schema)}")
    return [*arguments, *_session(task.session, options)], files, env


def _settings(options: Options, env: dict[str, str]) -> list[str]:
    """Which files of settings count; without the project's, its CLAUDE.md is read as that of an added directory."""
    sources = options.settings_sources
    arguments = [f"--setting-sources={','.join(dict.fromkeys(('user', *sources)))}"]
    if "project" in sources:
        return arguments
    env["CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD"] = "1"
    return [*arguments, "--strict-mcp-config", "--add-dir=."]


def _permissions(options: Options, *, is_fence: bool) -> list[str]:
    allowed, denied = options.tools_allowed, options.tools_denied
    mode = options.permission_mode or (("deny" if allowed else "bypass") if is_fence else None)
    patterns = [tool for tool in allowed if "(" in tool]
    if patterns and mode == "bypass":
        raise UsageError(
            f"the allowed tool {patterns[0]!r} (--allow-tool, tools.allow) counts for nothing where all is permitted; "
            "leave out --permission-mode bypass, or make it deny"
        )
    arguments: list[str] = []
    if allowed:
        arguments += [f"--tools={','.join(_built_in(allowed))}", f"--allowedTools={','.join(allowed)}"]
    if denied:
        arguments.append(f"--disallowedTools={','.join(denied)}")
    if mode == "bypass":
        return [*arguments, _SKIP]
    return [*arguments, f"--permission-mode={_MODES[mode]}"] if mode is not None else arguments


def _built_in(tools: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for name in names_in(tools) if not name.startswith("mcp__")))


def _session(session: Session | None, options: Options) -> list[str]:
    if session is None:
        return []
    if session.resumed_id is None:
        return [f"--session-id={session.new_id}"]
    resumed = [f"--resume={session.resumed_id}"]
    if options.system_prompt is not None or options.system_append is not None:
        # It would go on with the system prompt of the first time. Older ones do not, and do not know the option.
        resumed.append("--system-prompt-snapshot=off")
    return [*resumed, "--fork-session", f"--session-id={session.new_id}"] if session.is_forked else resumed


def _schema(schema: Mapping[str, object]) -> str:
    text = json.dumps(schema, separators=(",", ":"))
    if len(text) > _MOST_BYTES:
        raise UsageError(
            f"the output schema takes {len(text)} bytes, and claude takes it as an argument of at most {_MOST_BYTES}; "
            "make it shorter"
        )
    return text


def _mcp(servers: Iterable[McpServer]) -> bytes:
    return json.dumps({"mcpServers": {server.name: _server(server) for server in servers}}).encode()


def _server(server: McpServer) -> dict[str, object]:
    command = list(server.command)
    if server.cwd is not None:
        command = ["sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh", server.cwd, *command]
    return {"type": "stdio", "command": command[0], "args": command[1:], "env": server.env}


def _patience(servers: Iterable[McpServer]) -> dict[str, str]:
    """Its limits are for all servers together: the most patient counts."""
    start, call = (
        max(times) for times in zip(*((s.start_timeout_s, s.call_timeout_s) for s in servers), strict=True)
    )
    return {"MCP_TIMEOUT": str(round(start * 1000)), "MCP_TOOL_TIMEOUT": str(round(call * 1000))}
