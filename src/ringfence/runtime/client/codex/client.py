"""How `codex` is started. Seen with 0.169.0.

Its own sandbox cannot be made within another, and where it cannot, every command fails while the run counts as done:
inside a fence it is switched off. It reads no base URL from the environment, and takes no socket: its configuration
names the gateway as a provider. What the workspace's `.codex` says does not count; its AGENTS.md is read.
"""

import json
from collections.abc import Mapping, Sequence

from ringfence.errors import UsageError
from ringfence.runtime.base import Task
from ringfence.runtime.client.base import Client, Launch, Place, Stream
from ringfence.runtime.client.codex.configuration import configuration
from ringfence.runtime.client.codex.stream import CodexStream

_BYPASS = "--dangerously-bypass-approvals-and-sandbox"
_NO_DAEMON = "--no-daemon"
_RULES = b"""\
prefix_rule(pattern = [["rm", "/bin/rm", "/usr/bin/rm", "sudo"]], decision = "allow")
prefix_rule(
    pattern = [["bash", "/bin/bash", "/usr/bin/bash", "sh", "/bin/sh", "/usr/bin/sh", "zsh", "/bin/zsh"], ["-c", "-lc"]],
    decision = "allow",
)
"""
"""The second is for scripts that codex cannot take apart."""

_OURS = {
    "--json": "it is there already",
    "--model": "use --model of ringfence",
    "-m": "use --model of ringfence",
    "--ephemeral": "the session is kept for its continuation",
    "--output-schema": "use the option output_schema",
    "--cd": "use --workspace of ringfence",
    "-C": "use --workspace of ringfence",
    "--last": "use `ringfence run --continue`",
}
_OUTSIDE = {
    "--trust": "what the workspace configures would count then",
    "--dangerously-bypass-hook-trust": "what the workspace configures would count then",
    "--oss": "no local server of models is in the fence",
    "--worktree": "what is made there would end with the sandbox; use --mode clone of ringfence",
    "--remote": "it runs elsewhere, outside of the fence",
    "--ignore-user-config": "the configuration names the way to the model",
}
_INNER = {
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
_MOST_CHARS = 1024**2
"""Of a task (codex 0.169.0: `input_too_large`)."""


class CodexClient(Client):
    """The `codex` command line program."""

    name = "codex"
    title = "Codex"
    tested = ("0.169.0", "0.169.0")
    install = "npm install -g @openai/codex@0.169.0"

    def launch(self, task: Task, place: Place) -> Launch:
        """How to start it on a task. It makes the ids of its sessions itself.

        Raises:
            UsageError: An argument of the task's options that is not the user's to give, or a task that is too long.
        """
        options = task.options
        if len(task.prompt) > _MOST_CHARS:
            raise UsageError(
                f"the task has {len(task.prompt)} characters, and codex takes at most {_MOST_CHARS}; put what is long "
                "into a file of the workspace, and name that"
            )
        _check(options.cli_args, {**_OURS, **_OUTSIDE, **_INNER})
        argv = [place.program, "exec"]
        if task.session is not None and task.session.resumed_id is not None:
            argv += ["fork" if task.session.is_forked else "resume"]
        argv += ["--json", "--skip-git-repo-check", *_fenced(place), "--model", task.model]
        files = {
            f"{self.state_dir(place)}/config.toml": configuration(place, options, self.state_dir(place)),
            **self._rules(place),
        }
        if options.system_prompt is not None:
            files[f"{self.state_dir(place)}/instructions.md"] = options.system_prompt.encode(
                "utf-8", "replace"
            )
        if options.output_schema is not None:
            path = f"{self.state_dir(place)}/schema.json"
            files[path] = json.dumps(options.output_schema).encode()
            argv += ["--output-schema", path]
        argv += options.cli_args
        if task.session is not None and task.session.resumed_id is not None:
            argv.append(task.session.resumed_id)
        return Launch(
            argv=(*argv, "-"),
            env=self.environment(place),
            files=files,
            stdin=task.prompt.encode("utf-8", "replace"),
        )

    def interactive(self, place: Place, args: Sequence[str]) -> Launch:
        """How to start it on a person's terminal.

        Raises:
            UsageError: An argument that would lead out of the fence, or cannot work inside.
        """
        first = args[0] if args else ""
        if first in _COMMANDS_OUTSIDE:
            raise UsageError(f"`codex {first}` does not work inside: {_COMMANDS_OUTSIDE[first]}")
        _check(args, {**_OUTSIDE, **(_INNER if place.is_fence else {})})
        ours = [] if _BYPASS in args else _fenced(place)
        # Its work in the background would end with the sandbox, and could not be suspended.
        ours += [] if _NO_DAEMON in args else [_NO_DAEMON]
        return Launch(
            argv=(place.program, *([] if first in _COMMANDS_INSIDE else ours), *args),
            env=self.environment(place),
            files={
                f"{self.state_dir(place)}/config.toml": configuration(place, None, self.state_dir(place)),
                **self._rules(place),
            },
        )

    def stream(self) -> Stream:
        """What reads its output."""
        return CodexStream()

    def state_dir(self, place: Place) -> str:
        """Its `CODEX_HOME`. It must not be below `/tmp`: it makes no helpers there."""
        return f"{place.home}/.codex"

    def session_files(self) -> tuple[str, ...]:
        """Rollouts; its databases are not needed."""
        return ("sessions/*/*/*/rollout-*.jsonl",)

    def _rules(self, place: Place) -> dict[str, bytes]:
        """Rules by which codex lets commands run that it rejects by itself (0.169.0: all with `rm -f`).

        Where there is no fence, it goes on rejecting them.
        """
        return {f"{self.state_dir(place)}/rules/ringfence.rules": _RULES} if place.is_fence else {}

    def environment(self, place: Place) -> dict[str, str]:
        """What it needs in any case, however it is started. The key, a dummy, comes from the gate."""
        return {"CODEX_HOME": self.state_dir(place)}


def _fenced(place: Place) -> list[str]:
    return [_BYPASS] if place.is_fence else []


def _check(args: Sequence[str], refused: Mapping[str, str]) -> None:
    for before, word in zip(("", *args), args, strict=False):
        if word == "--" and not before.startswith("-"):  # after a flag it may be that one's value
            return
        is_long = word.startswith("--")
        name = word.partition("=")[0] if is_long else word[:2] if word.startswith("-") else word
        if name in refused:
            raise UsageError(f"the argument {name!r} of codex is refused: {refused[name]}; leave it out")
