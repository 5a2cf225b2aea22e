"""Starts `codex`, and writes its configuration inside. Observed with 0.169.0.

Its own sandbox cannot be created inside another one; every command then fails, while the run counts as done. So it is
switched off inside a fence. It reads no base URL from the environment, and supports no socket: its configuration names
the gateway as a provider. The workspace's `.codex` has no effect; its AGENTS.md is read.

Without its shell it has no tool that reads files either, except images. `--disable` overrides other arguments that
enable a feature. In the read-only mode of its own sandbox it refuses patches by itself, and starts no programs.
"""

import json
from collections.abc import Iterator, Sequence

from ringfence.errors import UsageError
from ringfence.runtime.agent_cli.base import (
    AgentCli,
    CliPaths,
    Launch,
    Output,
    check_arguments,
    check_command,
)
from ringfence.runtime.base import Task
from ringfence.runtime.codex.exit_status import CodexReport
from ringfence.runtime.codex.transcript import OutputTranslator
from ringfence.runtime.options import Options
from ringfence.tool.base import McpServer, UnknownTool

_PROVIDER = "gate"
_BYPASS = "--dangerously-bypass-approvals-and-sandbox"
_NO_DAEMON = "--no-daemon"
_RULES = b"""\
prefix_rule(pattern = [["rm", "/bin/rm", "/usr/bin/rm", "sudo"]], decision = "allow")
prefix_rule(
    pattern = [["bash", "/bin/bash", "/usr/bin/bash", "sh", "/bin/sh", "/usr/bin/sh", "zsh", "/bin/zsh"], ["-c", "-lc"]],
    decision = "allow",
)
"""
"""Rules for commands; the second is for scripts that codex cannot parse."""

_RESERVED = {
    "--json": "ringfence adds it",
    "--model": "use --model of ringfence",
    "-m": "use --model of ringfence",
    "--ephemeral": "ringfence keeps the session, so that it can be resumed",
    "--output-schema": "use the option output_schema",
    "--cd": "use --workspace of ringfence",
    "-C": "use --workspace of ringfence",
    "--last": "use `ringfence run --continue`",
}
_OUTSIDE = {
    "--trust": "the configuration in the workspace would take effect",
    "--dangerously-bypass-hook-trust": "the configuration in the workspace would take effect",
    "--oss": "there is no local model server in the fence",
    "--worktree": "the worktree would be lost with the sandbox; use --mode clone of ringfence",
    "--remote": "it runs elsewhere, outside of the fence",
    "--ignore-user-config": "the configuration names the model gateway",
}
_INNER_SANDBOX = {
    "--sandbox": "its own sandbox cannot be made in the fence, and every command would fail",
    "-s": "its own sandbox cannot be made in the fence, and every command would fail",
    "--approve-for-me": "its own sandbox cannot be made in the fence, and every command would fail",
}
_COMMANDS_OUTSIDE = {
    "login": "credentials stay outside; run it outside of the fence, or set OPENAI_API_KEY",
    "logout": "there are no credentials inside",
    "update": "the program is shown inside read-only; run it outside of the fence",
    "cloud": "it runs elsewhere, outside of the fence",
    "remote-control": "it is steered from outside of the fence",
    "exec-server": "it is steered from outside of the fence",
    "sandbox": "its own sandbox cannot be made in the fence",
}
_COMMANDS_INSIDE = frozenset({
    "agents", "app-server", "apply", "archive", "a", "completion", "debug", "delete", "doctor", "features", "help",
    "mcp", "mcp-server", "migrate-rollouts", "migrate-nfs-db", "plugin", "queue", "unarchive",
})  # fmt: skip
_SHELL, _PATCH = "shell", "apply_patch"
_DENIALS = {_PATCH: ("-c", 'sandbox_mode="read-only"'), _SHELL: ("--disable", "shell_tool")}
"""The arguments that take away a tool. `resume` and `fork` have no `--sandbox`."""
_MAX_TASK_CHARS = 1024**2
"""Limit for a task (codex 0.169.0: `input_too_large`)."""


class CodexCli(AgentCli):
    """The `codex` command line program."""

    name = "codex"
    title = "Codex"
    provider = "openai"
    tested = ("0.169.0", "0.169.0")
    install = "npm install -g @openai/codex@0.169.0"
    folder = ".codex"  # its CODEX_HOME; not below /tmp, where it creates no helpers
    session_files = ("sessions/*/*/*/rollout-*.jsonl",)  # its databases are not needed
    author_tools = (_PATCH, _SHELL)

    def check(self, prompt: str, options: Options) -> None:
        """Check that it can be started on a task.

        Raises:
            UsageError: An argument is reserved, a tool cannot be denied, or the task is too long.
        """
        if len(prompt) > _MAX_TASK_CHARS:
            raise UsageError(
                f"the task has {len(prompt)} characters, and codex takes at most {_MAX_TASK_CHARS}; put long texts "
                "into a file of the workspace, and name the file"
            )
        _check_denied(options)
        refused = {**_RESERVED, **_OUTSIDE, **_INNER_SANDBOX}
        if options.tools_denied:
            refused[_BYPASS] = "it would permit what tools.deny denies"
        check_arguments("codex", options.cli_args, refused, _flags)

    def launch(self, task: Task, paths: CliPaths) -> Launch:
        """Return how to start it on a task. It chooses the ids of its sessions itself.

        Raises:
            UsageError: As `check`.
        """
        self.check(task.prompt, task.options)
        options, session, folder = task.options, task.session, self.state_dir(paths)
        argv = [paths.program, "exec"]
        if session is not None and session.resumed_id is not None:
            argv += ["fork" if session.is_forked else "resume"]
        argv += ["--json", "--skip-git-repo-check", "--model", task.model]
        if _PATCH not in options.tools_denied:
            argv += _bypass(paths)
        files = self._files(paths, options)
        if options.system_prompt is not None:
            files[f"{folder}/instructions.md"] = options.system_prompt.encode("utf-8", "replace")
        if options.output_schema is not None:
            path = f"{folder}/schema.json"
            files[path] = json.dumps(options.output_schema).encode()
            argv += ["--output-schema", path]
        argv += options.cli_args
        argv += [word for tool in dict.fromkeys(options.tools_denied) for word in _DENIALS[tool]]
        if session is not None and session.resumed_id is not None:
            argv.append(session.resumed_id)
        return Launch(
            argv=(*argv, "-"),
            env=self.environment(paths),
            files=files,
            stdin=task.prompt.encode("utf-8", "replace"),
        )

    def check_interactive(self, args: Sequence[str], *, is_fence: bool = True) -> None:
        """Check a user's own arguments.

        Raises:
            UsageError: An argument would lead out of the fence, or cannot work inside.
        """
        check_command("codex", args, _COMMANDS_OUTSIDE)
        check_arguments("codex", args, {**_OUTSIDE, **(_INNER_SANDBOX if is_fence else {})}, _flags)

    def interactive(self, paths: CliPaths, args: Sequence[str], options: Options) -> Launch:  # noqa: ARG002 -- has none
        """Return how to start it on a user's terminal.

        Raises:
            UsageError: As `check_interactive`.
        """
        self.check_interactive(args, is_fence=paths.is_fence)
        ours = [] if _BYPASS in args else _bypass(paths)
        # Its background work would end with the sandbox, and could not be suspended.
        ours += [] if _NO_DAEMON in args else [_NO_DAEMON]
        is_command = bool(args) and args[0] in _COMMANDS_INSIDE
        return Launch(
            argv=(paths.program, *([] if is_command else ours), *args),
            env=self.environment(paths),
            files=self._files(paths, None),
        )

    def output(self) -> Output:
        """Return a reader of its output."""
        return Output(OutputTranslator("codex:stdout"), CodexReport())

    def environment(self, paths: CliPaths) -> dict[str, str]:
        """Return the variables that it always needs. The gate provides a dummy key."""
        return {"CODEX_HOME": self.state_dir(paths)}

    def _files(self, paths: CliPaths, options: Options | None) -> dict[str, bytes]:
        """Return its configuration, and rules that allow commands that it rejects by default.

        0.169.0 rejects all commands with `rm -f`. Without a fence, it still rejects them.
        """
        folder = self.state_dir(paths)
        files = {f"{folder}/config.toml": configuration(paths, options, folder)}
        return {**files, f"{folder}/rules/ringfence.rules": _RULES} if paths.is_fence else files


def _check_denied(options: Options) -> None:
    for tool in options.tools_denied:
        if tool not in _DENIALS:
            known = " and ".join(map(repr, _DENIALS))
            raise UnknownTool(f"codex can be denied {known}, not {tool!r}; leave it out", key="tools.deny")
    if _PATCH in options.tools_denied and _SHELL not in options.tools_denied:
        reason = f"without {_PATCH!r} no command of codex's shell works either; deny {_SHELL!r} as well"
        raise UnknownTool(reason, key="tools.deny")


def _bypass(paths: CliPaths) -> list[str]:
    return [_BYPASS] if paths.is_fence else []


def _flags(word: str) -> tuple[str]:
    """Return the flag in a word: a short one may be followed by its value."""
    if word.startswith("--"):
        return (word.partition("=")[0],)
    return (word[:2] if word.startswith("-") else word,)


def configuration(paths: CliPaths, options: Options | None, state_dir: str) -> bytes:
    """Return the configuration: the gateway as the provider, no reports to others, and the options' choices.

    Args:
        paths: Its paths inside.
        options: The options; None for a user's terminal.
        state_dir: Its directory inside.
    """
    lines = list(_top(options, state_dir))
    lines += [
        f"[model_providers.{_PROVIDER}]",
        'name = "the model gateway"',
        f"base_url = {_text(f'{paths.base_url}/v1')}",
        'env_key = "OPENAI_API_KEY"',
        'wire_api = "responses"',
        "request_max_retries = 2",
        "stream_max_retries = 2",
        "[analytics]",
        "enabled = false",
        "[features]",
        "plugins = false",
        "apps = false",
        "hooks = false",  # otherwise it asks the user about those of the workspace
        "[shell_environment_policy]",
        "ignore_default_excludes = false",
    ]
    if options is None:
        # It does not ask the user whether to trust the folder, as programs that its `.codex` starts are fenced, too.
        # In a folder that is marked as not trusted, AGENTS.md would be ignored.
        lines += [f"[projects.{_text(paths.workspace)}]", 'trust_level = "trusted"']
    for server in options.mcp_servers if options is not None else ():
        lines += _server(server)
    return "\n".join([*lines, ""]).encode("utf-8", "replace")


def _top(options: Options | None, state_dir: str) -> Iterator[str]:
    yield f"model_provider = {_text(_PROVIDER)}"
    yield "check_for_update_on_startup = false"
    if options is None:
        return
    if options.system_prompt is not None:
        yield f"model_instructions_file = {_text(f'{state_dir}/instructions.md')}"
    if options.system_append is not None:
        yield f"developer_instructions = {_text(options.system_append)}"


def _server(server: McpServer) -> Iterator[str]:
    yield f"[mcp_servers.{_text(server.name)}]"
    yield f"command = {_text(server.command[0])}"
    yield f"args = [{', '.join(map(_text, server.command[1:]))}]"
    if server.cwd is not None:
        yield f"cwd = {_text(server.cwd)}"
    # Otherwise it continues silently without a server that has not started.
    yield "required = true"
    yield f"startup_timeout_sec = {float(server.start_timeout_s)}"
    yield f"tool_timeout_sec = {float(server.call_timeout_s)}"
    if server.env:
        yield f"[mcp_servers.{_text(server.name)}.env]"
        yield from (f"{_text(name)} = {_text(value)}" for name, value in server.env.items())


def _text(text: str) -> str:
    """Return a TOML string: as in JSON, except for surrogate pairs and DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
