"""Defines the tree of commands: the name, help line and module of every command.

Help and completion of names read only this table. A command's module is imported when the command is used or its own
help is shown.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from ringfence.errors import UsageError
from ringfence.frozen import frozen


@frozen
class Entry:
    """A command."""

    target: str
    """Module below `ringfence.cli` and function, as `run.task:run`."""
    summary: str
    """One sentence of at most 60 characters; the first line of the function's docstring is the same."""


SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Work": ("run", "exec", "shell", "claude", "codex"),
    "Changes": ("diff", "apply", "undo", "checkpoint"),
    "Records": ("runs", "attest", "session"),
    "Loops": ("loop",),
    "Fleets": ("fleet", "job", "inbox"),
    "Setup": ("init", "sandbox", "image", "config", "doctor", "serve", "mcp", "gc", "help"),
}
"""The headings of `ringfence --help`."""

GROUPS: Mapping[str, str] = {
    "checkpoint": "Keep named states of a workspace and go back to them.",
    "runs": "List, show, verify, attest, export and remove runs.",
    "attest": "Verify and show attestations of runs.",
    "session": "List, show and follow sessions of the agent CLIs.",
    "loop": "Work through stories test-first, on a branch.",
    "fleet": "Keep agents working on schedules and triggers.",
    "fleet agents": "List, show, enable and disable the fleet's agents.",
    "fleet schedules": "List, run, pause and resume the schedules of agents.",
    "fleet workers": "List, drain, resume and remove workers, on all machines.",
    "inbox": "List and answer questions of the fleet's jobs.",
    "fleet token": "Create, list and remove tokens of the fleet's API.",
    "job": "List, show, follow, apply and retry the fleet's jobs.",
    "sandbox": "Create a standing sandbox and run commands in it.",
    "sandbox pool": "Show and end the sandboxes kept warm for runs.",
    "image": "Build, list, show and remove container images.",
    "config": "Show the configuration, and trust a project's file.",
    "config policy": "Show a sandbox's policy and explain what it allows.",
    "config secrets": "List secrets by name and test whether they resolve.",
}

COMMANDS: Mapping[str, Entry] = {
    "run": Entry("run.task:run", "Run an agent on a task in a sandbox, and verify its work."),
    "exec": Entry("run.command:execute", "Run one command in a sandbox."),
    "shell": Entry("run.command:shell", "Open a shell in a sandbox on this terminal."),
    "claude": Entry("run.agent_cli:claude", "Work with Claude Code in a sandbox on this terminal."),
    "codex": Entry("run.agent_cli:codex", "Work with Codex in a sandbox on this terminal."),
    "diff": Entry("changes.commands:diff", "Show what a run changed in its workspace."),
    "apply": Entry("changes.commands:apply", "Apply a run's changes to the workspace."),
    "undo": Entry("changes.commands:undo", "Undo a run's changes in the workspace."),
    "checkpoint create": Entry("changes.checkpoint:create", "Keep the state of the workspace under a name."),
    "checkpoint ls": Entry("changes.checkpoint:ls", "List the workspace's checkpoints, the newest first."),
    "checkpoint diff": Entry("changes.checkpoint:diff", "Show what changed since a checkpoint."),
    "checkpoint restore": Entry("changes.checkpoint:restore", "Set the workspace back to a checkpoint."),
    "checkpoint rm": Entry("changes.checkpoint:rm", "Remove a checkpoint and what only it holds."),
    "runs ls": Entry("runs.commands:ls", "List runs, the newest first."),
    "runs show": Entry("runs.commands:show", "Show how a run ended and what it changed and cost."),
    "runs logs": Entry("runs.commands:logs", "Print the events of a run, in order."),
    "runs verify": Entry("runs.commands:verify", "Verify that a record is complete and unchanged."),
    "runs export": Entry("runs.commands:export", "Export a run's session as one JSON document."),
    "runs attest": Entry("attest:attest", "Sign a statement about a run that others can verify."),
    "runs stop": Entry("runs.commands:stop", "Stop a run that is running in another terminal."),
    "runs rm": Entry("runs.commands:rm", "Remove records of runs that have ended."),
    "attest verify": Entry("attest:verify", "Verify an attestation, and compare a tree with it."),
    "attest show": Entry("attest:show", "Print the statement of an attestation, unverified."),
    "session ls": Entry("session:ls", "List sessions of the agent CLIs and of ringfence."),
    "session show": Entry("session:show", "Print the events of a session, in order."),
    "session follow": Entry("session:follow", "Print a session's events as they are written."),
    "loop start": Entry("loop.commands:start", "Start a loop that works through stories test-first."),
    "loop resume": Entry("loop.commands:resume", "Resume a loop that stopped before its stories were done."),
    "loop accept": Entry("loop.commands:accept", "Accept a rejected attempt at a story and resume the loop."),
    "loop reject": Entry("loop.commands:reject", "Reject a story that passed and resume the loop."),
    "loop retry": Entry("loop.commands:retry", "Retry a skipped or blocked story and resume the loop."),
    "loop check": Entry("loop.commands:check", "Check stories, repository and roles before starting."),
    "loop ls": Entry("loop.commands:ls", "List loops, the newest first."),
    "loop status": Entry("loop.commands:status", "Show the state of a loop's stories and what they used."),
    "loop show": Entry("loop.commands:show", "Show a loop's report: evidence, changes, cost and time."),
    "loop logs": Entry("loop.commands:logs", "Print the events of a loop."),
    "loop diff": Entry("loop.commands:diff", "Print the changes of a loop or of one story as a patch."),
    "loop attest": Entry(
        "loop.attestation:attest", "Attach an attestation to the last commit of a loop's branch."
    ),
    "loop export": Entry("loop.commands:export", "Export the stories with their progress to a file."),
    "loop cancel": Entry("loop.commands:cancel", "Cancel a loop; accepted stories stay."),
    "loop rm": Entry("loop.commands:rm", "Remove a loop's working files; its branch stays."),
    "fleet up": Entry("fleet.daemon:up", "Start the fleet's daemon."),
    "fleet down": Entry("fleet.daemon:down", "Stop the fleet's daemon, and wait until it is gone."),
    "fleet status": Entry("fleet.daemon:status", "Show the state of the fleet and its agents."),
    "fleet reload": Entry("fleet.daemon:reload", "Reload the fleet's files, and print what changed."),
    "fleet diff": Entry("fleet.daemon:diff", "Show what `ringfence fleet reload` would change."),
    "fleet show": Entry("fleet.daemon:show", "Print the effective configuration of each agent."),
    "fleet validate": Entry("fleet.daemon:validate", "Validate the fleet's files without starting anything."),
    "fleet trigger": Entry("fleet.daemon:trigger", "Start a job of an agent now."),
    "fleet agents ls": Entry("fleet.agents:list_agents", "List the fleet's agents."),
    "fleet agents show": Entry("fleet.agents:show_agent", "Show one agent with its schedules and triggers."),
    "fleet agents enable": Entry("fleet.agents:enable", "Enable an agent."),
    "fleet agents disable": Entry("fleet.agents:disable", "Disable an agent; running jobs continue."),
    "fleet workers ls": Entry("fleet.workers:list_workers", "List the fleet's workers."),
    "fleet workers drain": Entry(
        "fleet.workers:drain", "Let workers take no more jobs; running jobs continue."
    ),
    "fleet workers resume": Entry("fleet.workers:resume", "Let workers take jobs again."),
    "fleet workers rm": Entry("fleet.workers:remove", "Remove a dead worker from the list."),
    "fleet schedules ls": Entry("fleet.agents:list_schedules", "List schedules and when each fires next."),
    "fleet schedules next": Entry("fleet.agents:next_times", "Print when a schedule fires next, in UTC."),
    "fleet schedules run": Entry("fleet.agents:run_now", "Start the job of a schedule now."),
    "fleet schedules pause": Entry("fleet.agents:pause", "Pause a schedule."),
    "fleet schedules resume": Entry("fleet.agents:resume", "Resume a schedule from now on."),
    "fleet worker": Entry("fleet.worker:worker", "Run jobs of a fleet on this machine until stopped."),
    "fleet token create": Entry("fleet.tokens:create", "Create a token for the API, and print it once."),
    "fleet token ls": Entry("fleet.tokens:ls", "List the tokens of the API."),
    "fleet token rm": Entry("fleet.tokens:rm", "Remove a token; from then on it is refused."),
    "fleet import": Entry("fleet.herdctl:import_fleet", "Convert a herdctl fleet to a ringfence.yaml."),
    "fleet systemd": Entry("fleet.daemon:systemd", "Print a systemd unit for the fleet."),
    "job ls": Entry("fleet.job:ls", "List jobs, the newest first."),
    "job show": Entry("fleet.job:show", "Show one job."),
    "job logs": Entry("fleet.job:logs", "Print the events of a job."),
    "job diff": Entry("fleet.job_changes:diff", "Show what a job changed in its workspace."),
    "job apply": Entry("fleet.job_changes:apply", "Apply a job's changes to its workspace."),
    "job reject": Entry(
        "fleet.job_changes:reject", "Reject a job's changes; those in the workspace are undone."
    ),
    "job cancel": Entry("fleet.job:cancel", "Cancel a job, and keep the work so far."),
    "job retry": Entry("fleet.job:retry", "Run a job again as a new job."),
    "job fork": Entry("fleet.job:fork", "Start a new job from where a job ended."),
    "job rm": Entry("fleet.job:rm", "Remove a job that has ended; its records stay."),
    "inbox ls": Entry("fleet.inbox:ls", "List what waits for a person: questions, and changes."),
    "inbox show": Entry("fleet.inbox:show", "Show one question, or one request to apply changes."),
    "inbox answer": Entry("fleet.inbox:answer", "Answer a question: allow or deny."),
    "inbox grants": Entry("fleet.inbox:grants", "List rules that agents were granted."),
    "inbox revoke": Entry("fleet.inbox:revoke", "Take a granted rule away from an agent."),
    "init": Entry("config.commands:init", "Write a ringfence.yaml that explains every key."),
    "sandbox create": Entry("sandbox.commands:create", "Create a sandbox that stays until it is removed."),
    "sandbox exec": Entry("sandbox.commands:execute", "Run a command in a standing sandbox."),
    "sandbox ls": Entry("sandbox.commands:ls", "List standing sandboxes."),
    "sandbox show": Entry("sandbox.commands:show", "Show a standing sandbox's state and policy as JSON."),
    "sandbox stats": Entry("sandbox.commands:stats", "Show the memory, CPU time and processes in use."),
    "sandbox cp": Entry("sandbox.commands:copy", "Copy files into a standing sandbox, or out of it."),
    "sandbox forward": Entry("sandbox.commands:forward", "Serve a port of a standing sandbox on 127.0.0.1."),
    "sandbox allow": Entry("sandbox.commands:allow_egress", "Allow a running sandbox to reach an address."),
    "sandbox deny": Entry("sandbox.commands:deny_egress", "Deny a running sandbox access to an address."),
    "sandbox rm": Entry("sandbox.commands:remove", "Stop standing sandboxes and seal their records."),
    "sandbox pool status": Entry(
        "sandbox.pool:status", "Show the warm sandboxes and how often they were used."
    ),
    "sandbox pool stop": Entry("sandbox.pool:stop", "Stop all warm sandboxes that no run uses."),
    "image build": Entry("image:build", "Build images, and print their names."),
    "image ls": Entry("image:ls", "List the images of ringfence, the newest first."),
    "image show": Entry("image:show", "Show what an image is made of, and its size."),
    "image rm": Entry("image:rm", "Remove images that no container uses."),
    "config show": Entry("config.commands:show", "Show the effective configuration of a run."),
    "config trust": Entry(
        "config.commands:trust", "Trust the present content of a project's ringfence.yaml."
    ),
    "config schema": Entry("config.commands:schema", "Print the JSON Schema of ringfence.yaml for editors."),
    "config prices": Entry("config.commands:prices", "Show the prices of models, with source and date."),
    "config policy show": Entry("config.policy:show", "Show the effective policy of a sandbox."),
    "config policy explain": Entry(
        "config.policy:explain", "Explain whether an address is allowed, and why."
    ),
    "config policy test": Entry("config.policy:check", "Test the policy against a file of expectations."),
    "config secrets ls": Entry(
        "config.secrets:list_secrets", "List secrets by name, and which runs have them."
    ),
    "config secrets test": Entry("config.secrets:try_secret", "Test whether a secret can be resolved."),
    "doctor": Entry("doctor:doctor", "Check this machine: try escapes, and say what is missing."),
    "serve": Entry("serve:serve", "Show the dashboard in a browser."),
    "mcp": Entry("mcp:mcp", "Serve sandboxes to an MCP client on stdin and stdout."),
    "gc": Entry("gc:gc", "Clean up after dead processes, and remove old runs."),
    "help": Entry("help:help_", "Show the help of a command, or a page about a topic."),
}

RENAMED: Mapping[str, str] = {
    "audit": "runs",
    "audit show": "runs logs",
    "audit follow": "runs logs --follow",
    "loop list": "loop ls",
    "loop watch": "loop logs --follow",
    "loop clean": "loop rm",
    "agent": "fleet agents",
    "schedule": "fleet schedules",
    "worker": "fleet worker",
    "pool": "sandbox pool",
    "sandbox inspect": "sandbox show",
    "secret": "config secrets",
    "policy": "config policy",
    "trust": "config trust",
}
"""Names of version 0.1, for which version 0.2 reports the new ones."""


class CommandGroup(TyperGroup):
    """A group of commands below a name; at the root, all commands."""

    path = ""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 -- as Typer calls it
        """The names below this one, in the order of the table."""
        if not self.path:
            return [name for names in SECTIONS.values() for name in names]
        start = f"{self.path} "
        below = (name.removeprefix(start) for name in COMMANDS if name.startswith(start))
        return list(dict.fromkeys(name.partition(" ")[0] for name in below))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 -- as Typer calls it
        """A command or group by its name; its module is imported. None if there is none."""
        if cmd_name not in self.commands:
            path = f"{self.path} {cmd_name}".strip()
            if path in GROUPS:
                self.commands[cmd_name] = _group(path)
            elif path in COMMANDS:
                self.commands[cmd_name] = _load(path)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the words name.

        Raises:
            UsageError: It was renamed.
        """
        name, names = args[0], self.list_commands(ctx)
        if name not in names and not name.startswith("-") and not ctx.resilient_parsing:
            refuse_renamed([*self.path.split(), *args])
            from difflib import get_close_matches

            near = ", ".join(map(repr, get_close_matches(name, names)))
            ctx.fail(f"No such command {name!r}.{f' Did you mean {near}?' if near else ''}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names with their help lines; at the root, below headings."""
        sections = SECTIONS if not self.path else {"Commands": self.list_commands(ctx)}
        for heading, names in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self._summary(name)) for name in names])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Names and help lines for a shell."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = self.list_commands(ctx)
        listed = TyperGroup(
            commands=[TyperCommand(name, help=self._summary(name), rich_markup_mode=None) for name in names]
        )
        return listed.shell_complete(typer.Context(listed), incomplete)

    def _summary(self, name: str) -> str:
        path = f"{self.path} {name}".strip()
        return GROUPS[path] if path in GROUPS else COMMANDS[path].summary


def find_command(context: Any, words: Sequence[str]) -> Any:
    """Return the context of the command or group that the words name; None if there is none.

    Args:
        context: The context of the root.
        words: The names of groups and the command, such as `runs` and `show`.
    """
    for name in words:
        command = context.command
        below = command.get_command(context, name) if isinstance(command, CommandGroup) else None
        if below is None:
            return None
        context = typer.Context(below, info_name=name, parent=context)
    return context


def refuse_renamed(words: Sequence[str]) -> None:
    """Refuse a name of version 0.1.

    Raises:
        UsageError: The command was renamed; the message gives the new name.
    """
    for count in (2, 1):
        old, more = " ".join(words[:count]), words[count:2]
        if old in RENAMED:
            given, new = " ".join([old, *more]), " ".join([RENAMED[old], *more])
            raise UsageError(f"`ringfence {given}` is now `ringfence {new}`")


def _group(path: str) -> CommandGroup:
    group = CommandGroup(
        name=path.rpartition(" ")[2], help=GROUPS[path], no_args_is_help=True, rich_markup_mode=None
    )
    group.path = path
    return group


def _load(path: str) -> Any:
    module, _, name = COMMANDS[path].target.partition(":")
    function = getattr(import_module(f"ringfence.cli.{module}"), name)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(path.rpartition(" ")[2], **getattr(function, "command_options", {}))(function)
    return typer.main.get_command(app)
