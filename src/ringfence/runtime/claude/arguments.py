"""Builds the arguments of `claude` for a task, and refuses arguments that would lead out of the fence.

The module that suggests a name for a misspelled tool is imported on use.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from ringfence.errors import UsageError
from ringfence.runtime.agent_cli.base import check_arguments, check_command
from ringfence.runtime.base import Session, Task
from ringfence.runtime.options import Options
from ringfence.tool.base import McpServer, ToolKey, UnknownTool

SKIP_PERMISSIONS = "--dangerously-skip-permissions"

_MAX_ARGUMENT_BYTES = 100_000
"""The kernel refuses an argument of 128 KiB."""
_MODES = {"accept_edits": "acceptEdits", "plan": "plan", "deny": "dontAsk", "default": "default"}
_RESERVED = {
    "--output-format": "ringfence reads the output",
    "--input-format": "ringfence sends the prompt",
    "--replay-user-messages": "ringfence sends the prompt",
    "--permission-prompt-tool": "nobody is there to answer",
    "--permission-prompts": "nobody is there to answer",
    "--permission-mode": "use the option permission_mode",
    "--setting-sources": "use the option settings_sources",
    "--session-id": "ringfence chooses it",
    "--resume": "use `ringfence run --continue`",
    "-r": "use `ringfence run --continue`",
    "--continue": "use `ringfence run --continue`",
    "-c": "use `ringfence run --continue`",
    "--fork-session": "use `ringfence run --fork`",
    "--no-session-persistence": "ringfence keeps the session, so that it can be resumed",
    "--model": "use --model of ringfence",
}
_OUTSIDE = {
    "--bg": "a session in the background ends with its sandbox",
    "--background": "a session in the background ends with its sandbox",
    "--cloud": "it runs elsewhere, outside of the fence",
    "--environment": "it runs elsewhere, outside of the fence",
    "--teleport": "it takes over a session from outside of the fence",
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
_TOOLS = frozenset({
    "Agent", "Artifact", "AskUserQuestion", "Bash", "ClaudeDesign", "CronCreate", "CronDelete", "CronList", "Edit",
    "EndConversation", "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "LSP",
    "ListAgents", "ListMcpResourcesTool", "Monitor", "NotebookEdit", "OfferChromeSetup", "PowerShell", "Projects",
    "PushNotification", "Read", "ReadMcpResourceDirTool", "ReadMcpResourceTool", "ReadNotifications", "RemoteTrigger",
    "ReportFindings", "ScheduleWakeup", "SendFeedback", "SendMessage", "SendUserFile", "SendUserMessage", "SetGoal",
    "ShareOnboardingGuide", "ShowOnboardingRolePicker", "Skill", "StructuredOutput", "SubagentHandback", "TaskCreate",
    "TaskGet", "TaskList", "TaskStop", "TaskUpdate", "TodoWrite", "ToolSearch", "WaitForMcpServers", "WebFetch",
    "WebSearch", "Workflow", "Write", "propose_skills",
    # Aliases of these.
    "Brief", "KillBash", "KillShell", "ListMcpResources", "ListPeers", "ProposeGoal", "ReadMcpResource",
    "ReadMcpResourceDir", "Task",
    # In older versions only.
    "AgentOutput", "AgentOutputTool", "AutofixPr", "BashOutput", "BashOutputTool", "DesignSync", "Frame", "FrameRead",
    "REPL", "RunWorkflow", "SuggestBackgroundPR", "TaskOutput", "TeamCreate", "TeamDelete",
})  # fmt: skip
"""The tools that 2.1.197 and 2.1.329 list; the configuration decides which of them are offered."""
_ALLOWED_BY = "--allow-tool, tools.allow"
_RULE = re.compile(r"([^\s,()]+)(?:\(.*?\)(?=[\s,]|$))?")
_SERVER_FLAGS = frozenset({"--mcp-config", "--plugin-dir", "--plugin-url", "--settings"})
"""Arguments that may add further servers."""


class TaskArguments:
    """The arguments, variables and files for a task.

    Args:
        task: A task that `check_options` accepts.
        folder: The directory inside for the files.
        permission_mode: The permission mode; None: claude's own.
    """

    def __init__(self, task: Task, folder: str, permission_mode: str | None) -> None:
        options = task.options
        self.files: dict[str, bytes] = {}
        self.env: dict[str, str] = {}
        self._folder = folder
        self.argv = [
            f"--model={task.model}",
            *self._settings(options),
            *_permissions(options, permission_mode),
            *self._text_file("system-prompt-file", options.system_prompt),
            *self._text_file("append-system-prompt-file", options.system_append),
            *self._mcp_servers(options.mcp_servers),
            *(f"--plugin-dir={plugin}" for plugin in options.plugins),
            *_schema(options),
            *_session(task.session, options),
        ]

    def _settings(self, options: Options) -> list[str]:
        arguments = settings_arguments(options)
        if "project" in options.settings_sources:
            return arguments
        self.env["CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD"] = "1"
        return [*arguments, "--strict-mcp-config"]

    def _text_file(self, flag: str, text: str | None) -> list[str]:
        if text is None:
            return []
        path = f"{self._folder}/{flag}.md"
        self.files[path] = text.encode("utf-8", "replace")
        return [f"--{flag}={path}"]

    def _mcp_servers(self, servers: Sequence[McpServer]) -> list[str]:
        if not servers:
            return []
        path = f"{self._folder}/mcp.json"
        configuration = {"mcpServers": {server.name: _server(server) for server in servers}}
        self.files[path] = json.dumps(configuration).encode()
        # Its timeouts apply to all servers together, so the longest is used.
        start_s, call_s = (max(s.start_timeout_s for s in servers), max(s.call_timeout_s for s in servers))
        self.env["MCP_TIMEOUT"], self.env["MCP_TOOL_TIMEOUT"] = (
            str(round(seconds * 1000)) for seconds in (start_s, call_s)
        )
        return [f"--mcp-config={path}"]


def settings_arguments(options: Options) -> list[str]:
    """Return the arguments that choose settings; without the project's, CLAUDE.md is read from an added directory.

    They use `=`, because some take any number of values, and a prompt after them would be read as one.
    """
    sources = options.settings_sources
    chosen = f"--setting-sources={','.join(dict.fromkeys(('user', *sources)))}"
    return [chosen] if "project" in sources else [chosen, "--add-dir=."]


def _permissions(options: Options, mode: str | None) -> list[str]:
    allowed, denied = options.tools_allowed, options.tools_denied
    usable = (*allowed, *options.tools_permitted)
    arguments: list[str] = []
    if allowed:
        built_in = dict.fromkeys(name for name in names_in(usable) if not name.startswith("mcp__"))
        arguments.append(f"--tools={','.join(built_in)}")
    if usable:
        arguments.append(f"--allowedTools={','.join(usable)}")
    if denied:
        arguments.append(f"--disallowedTools={','.join(denied)}")
    if mode == "bypass":
        return [*arguments, SKIP_PERMISSIONS]
    return [*arguments, f"--permission-mode={_MODES[mode]}"] if mode is not None else arguments


def _schema(options: Options) -> list[str]:
    return [] if options.output_schema is None else [f"--json-schema={_schema_text(options.output_schema)}"]


def _schema_text(schema: Mapping[str, object]) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _session(session: Session | None, options: Options) -> list[str]:
    if session is None:
        return []
    if session.resumed_id is None:
        return [f"--session-id={session.new_id}"]
    resumed = [f"--resume={session.resumed_id}"]
    if options.system_prompt is not None or options.system_append is not None:
        # It would resume with the original system prompt. Older versions do not, and lack the option.
        resumed.append("--system-prompt-snapshot=off")
    return [*resumed, "--fork-session", f"--session-id={session.new_id}"] if session.is_forked else resumed


def _server(server: McpServer) -> dict[str, object]:
    command = list(server.command)
    if server.cwd is not None:
        command = ["sh", "-c", 'cd -- "$1" && shift && exec "$@"', "sh", server.cwd, *command]
    return {"type": "stdio", "command": command[0], "args": command[1:], "env": server.env}


def check_options(options: Options, *, knows_mcp_servers: bool) -> None:
    """Check that options have an effect in claude, and do not override Ringfence's own arguments.

    Args:
        options: The task's options.
        knows_mcp_servers: Whether they name all MCP servers.

    Raises:
        UsageError: An argument is reserved, a tool is unknown, a pattern has no effect, or the schema is too long.
    """
    check_arguments("claude", options.cli_args, {**_RESERVED, **_OUTSIDE}, _flags)
    _check_tools(options, knows_mcp_servers=knows_mcp_servers)
    patterns = [tool for tool in options.tools_allowed if "(" in tool]
    if patterns and options.permission_mode == "bypass":
        raise UsageError(
            f"the allowed tool {patterns[0]!r} ({_ALLOWED_BY}) has no effect where everything is permitted; "
            "leave out --permission-mode bypass, or use deny"
        )
    size = len(_schema_text(options.output_schema)) if options.output_schema is not None else 0
    if size > _MAX_ARGUMENT_BYTES:
        raise UsageError(
            f"the output schema takes {size} bytes, and claude takes it as an argument of at most "
            f"{_MAX_ARGUMENT_BYTES}; make it shorter"
        )


def is_program_command(args: Sequence[str]) -> bool:
    """Return whether a user's arguments begin with a command of the program that works inside."""
    return bool(args) and args[0] in _COMMANDS_INSIDE


def check_interactive_arguments(args: Sequence[str]) -> None:
    """Check that a user's arguments make sense in the fence.

    Raises:
        UsageError: They do not.
    """
    check_command("claude", args, _COMMANDS_OUTSIDE)
    check_arguments("claude", args, _OUTSIDE, _flags)


def _flags(word: str) -> Iterator[str]:
    """Yield the flags in a word, which can hold several short ones, up to one that takes a value."""
    if word.startswith("--") or not word.startswith("-"):
        yield word.partition("=")[0]
        return
    for letter in word[1:]:
        yield f"-{letter}"
        if letter in _WITH_VALUE:
            return


def names_in(tools: Iterable[str]) -> Iterator[str]:
    """Yield the tools that rules name; one text may contain several: `Read,Bash(git *)`."""
    for text in tools:
        yield from (found[1] for found in _RULE.finditer(text))


def _check_tools(options: Options, *, knows_mcp_servers: bool) -> None:
    """Check the names of tools, since claude ignores unknown names silently; `force` accepts any."""
    if options.force:
        return
    keys: dict[ToolKey, tuple[str, ...]] = {
        "tools.allow": options.tools_allowed,
        "tools.permit": options.tools_permitted,
    }
    for key, tools in keys.items():
        for name in names_in(tools):
            if "*" in name and not name.startswith("mcp__"):
                raise UnknownTool(f"{name!r} would allow no tool; name each tool", key=key)
    given = {word.partition("=")[0] for word in options.cli_args}
    may_bring_servers = bool(options.plugins or options.settings_sources or given & _SERVER_FLAGS)
    servers = None
    if knows_mcp_servers and not may_bring_servers:
        servers = sorted(server.name for server in options.mcp_servers)
    for key, tools in {**keys, "tools.deny": options.tools_denied}.items():
        for name in names_in(tools):
            _check_name(name, servers, key)


def _check_name(name: str, servers: Sequence[str] | None, key: ToolKey) -> None:
    if not name.startswith("mcp__"):
        if not any(fnmatchcase(each, name) for each in _TOOLS):
            raise UnknownTool(f"claude has no tool {name!r}; {_suggestion(name)}", key=key)
    elif servers is not None and not any(_is_of(server, name) for server in servers):
        known = ", ".join(servers) or "none; see tools.mcp"
        raise UnknownTool(
            f"the tool {name!r} belongs to no MCP server of this task, which has {known}", key=key
        )


def _is_of(server: str, name: str) -> bool:
    begin = f"mcp__{server}"
    return (
        name == begin or name.startswith(f"{begin}__") or ("*" in name and fnmatchcase(f"{begin}__x", name))
    )


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    lower = {each.lower(): each for each in _TOOLS}
    near = [lower[each] for each in get_close_matches(name.lower(), lower, n=1)]
    like = f"did you mean {near[0]!r}?" if near else "it has Bash, Edit, Read and others."
    return f"{like} With --force, names that this release does not know are accepted"
