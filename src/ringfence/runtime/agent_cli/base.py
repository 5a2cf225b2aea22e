"""Defines the contract of an agent CLI: how it is started, and how its output is read. Starts no process."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, Protocol

from ringfence.egress.gateway.verdict import Verdict
from ringfence.errors import RingfenceError, UsageError
from ringfence.events import Event, Origin, TranscriptNoted
from ringfence.frozen import frozen
from ringfence.runtime.agent_cli.exit_status import Report
from ringfence.runtime.base import Task
from ringfence.runtime.options import Options
from ringfence.runtime.transcript.record import Item, Line, Record
from ringfence.runtime.transcript.translator import CliName, Translator
from ringfence.sandbox.spec import Mount
from ringfence.secret import Provider

_MAX_QUOTED_BYTES = 2000


@frozen
class Program:
    """The program of an agent CLI, as it was found."""

    path: str
    """Its path inside; a name without a slash is on the PATH there."""
    version: str | None
    """Its version. None for a program that may only be run inside (`checked_inside`), since it belongs to the image or
    to another user."""
    mounts: tuple[Mount, ...] = ()
    """The mounts that show it inside, to be added to the sandbox's; none if the image contains it."""


@frozen
class CliPaths:
    """The paths and addresses that an agent CLI has in a sandbox."""

    program: str
    """Its path inside."""
    home: str
    """HOME inside; the CLI's own directory is below it."""
    workspace: str
    base_url: str
    """The address of the model gateway inside, `http://127.0.0.1:PORT`."""
    socket: str | None = None
    """The gateway's Unix socket, for CLIs that can use one."""
    is_fence: bool = True
    """Whether there is a fence; False on the bare host, where the CLI's own checks stay on."""


@frozen
class Launch:
    """How an agent CLI is started inside."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables added to the environment of every command inside."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files to write inside before the start, by absolute path."""
    stdin: bytes = b""
    """The input, after which stdin is closed."""


class ModelMonitor(Protocol):
    """The observer of all requests to the model and of their responses, which is the model gateway."""

    @property
    def turns(self) -> int:
        """The number of requests that were answered."""

    @property
    def last(self) -> Verdict | None:
        """The outcome of the last request; None before the first."""

    @property
    def stopped(self) -> RingfenceError | None:
        """Why no more requests are served; None while they are."""

    async def wait_stopped(self) -> RingfenceError:
        """Wait until no more requests are served; return why."""


class Output:
    """Reads the output of an agent CLI: one JSON object per line, each line hostile. No method raises.

    Args:
        translator: Turns records into events.
        report: Collects information about the end from the output.
    """

    def __init__(self, translator: Translator, report: Report) -> None:
        self.report = report
        self._translator = translator

    def take(self, line: Line, items: Sequence[Item]) -> list[Event]:
        """Return the events that a line completes. A line that is not a JSON object is noted.

        Args:
            line: The line.
            items: The parsed line (`parse`).
        """
        records = [item for item in items if isinstance(item, Record)]
        for record in records:
            self.report.take(record.value)
        if items and not records and line.data is not None and line.size <= _MAX_QUOTED_BYTES:
            return [*self._translator.flush(), self._not_json(line.number, line.data)]
        return [event for item in items for event in self._translator.translate(item)]

    def end(self) -> list[Event]:
        """Return the events that are pending when the output has ended."""
        return self._translator.end()

    def _not_json(self, number: int, data: bytes) -> Event:
        """Return the event for a short line that is not JSON, mostly a warning for the user."""
        origin = Origin(file=self._translator.file, line=number)
        return TranscriptNoted(
            origin=origin, kind="no_json", text=data.decode("utf-8", "replace"), record=None
        )


def check_arguments(
    cli: CliName,
    args: Sequence[str],
    refused: Mapping[str, str],
    flags_of: Callable[[str], Iterable[str]],
) -> None:
    """Check that none of the arguments of an agent CLI is refused.

    Args:
        cli: The agent CLI.
        args: The arguments.
        refused: Flags that are refused, each with the reason.
        flags_of: Returns the flags in a word, as the CLI reads it.

    Raises:
        UsageError: An argument is refused.
    """
    for before, word in zip(("", *args), args, strict=False):
        if word == "--" and not before.startswith("-"):  # after a flag it may be the flag's value
            return
        for name in flags_of(word):
            if name in refused:
                raise UsageError(f"the argument {name!r} of {cli} is refused: {refused[name]}; leave it out")


def check_command(cli: CliName, args: Sequence[str], refused: Mapping[str, str]) -> None:
    """Check that a user's arguments do not begin with a refused command.

    Raises:
        UsageError: They do.
    """
    if args and args[0] in refused:
        raise UsageError(f"`{cli} {args[0]}` does not work inside: {refused[args[0]]}")


class AgentCli(ABC):
    """An agent CLI."""

    name: ClassVar[CliName]
    title: ClassVar[str]
    """Its display name."""
    provider: ClassVar[Provider]
    """The provider whose models it uses."""
    tested: ClassVar[tuple[str, str]]
    """The oldest and the newest version with which this release was tested."""
    install: ClassVar[str]
    """A command that installs it."""
    folder: ClassVar[str]
    """Its own directory, below HOME."""
    session_files: ClassVar[tuple[str, ...]]
    """Patterns, below that directory, of the files that a session can be resumed from."""
    author_tools: ClassVar[tuple[str, ...]]
    """Its tools that run programs or write files, which `tools_denied` can take away."""

    @abstractmethod
    def check(self, prompt: str, options: Options) -> None:
        """Check that it can be started on a task, before anything is created for the task.

        Raises:
            UsageError: It cannot, for example because an argument is reserved or the task is too long.
        """

    @abstractmethod
    def launch(self, task: Task, paths: CliPaths) -> Launch:
        """Return how to start it on a task, unattended.

        Raises:
            UsageError: As `check`.
        """

    @abstractmethod
    def check_interactive(self, args: Sequence[str]) -> None:
        """Check a user's own arguments.

        Raises:
            UsageError: An argument would lead out of the fence, or cannot work inside.
        """

    @abstractmethod
    def interactive(self, paths: CliPaths, args: Sequence[str], options: Options) -> Launch:
        """Return how to start it on a user's terminal.

        Args:
            paths: Its paths inside.
            args: The user's own arguments.
            options: The options, which say whose settings apply.

        Raises:
            UsageError: As `check_interactive`.
        """

    @abstractmethod
    def output(self) -> Output:
        """Return a reader of its output."""

    def state_dir(self, paths: CliPaths) -> str:
        """Return its own directory inside."""
        return f"{paths.home}/{self.folder}"
