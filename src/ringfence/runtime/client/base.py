"""What each client is to the runtime that runs it: how it is started, and what its output means. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from ringfence.egress.gateway.verdict import Verdict
from ringfence.errors import RingfenceError
from ringfence.events import Event
from ringfence.frozen import frozen
from ringfence.runtime.base import Task
from ringfence.runtime.client.seen import ClientName, Seen
from ringfence.runtime.transcript.lines import Line
from ringfence.sandbox.spec import Mount


@frozen
class Program:
    """A client's program, as it was found."""

    path: str
    """Where it is inside; a name without a slash is on the PATH there."""
    version: str | None
    """None for one that can only be asked inside, as it is the image's or somebody else's (`checked_inside`)."""
    mounts: tuple[Mount, ...] = ()
    """What shows it inside, to be added to the sandbox's; none where the image has it."""


@frozen
class Place:
    """Where a client works."""

    program: str
    """Its path inside."""
    home: str
    """HOME inside; the client's own directory is below it."""
    workspace: str
    base_url: str
    """Of the model gateway inside, `http://127.0.0.1:PORT`."""
    socket: str | None = None
    """The same by a Unix socket, for clients that take one."""
    is_fence: bool = True
    """False on the bare host, where the client's own checks stay on."""


@frozen
class Launch:
    """How a client is started inside."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Beside what every command inside gets."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Written inside before, by absolute path."""
    stdin: bytes = b""
    """Sent, then closed."""


class ModelWitness(Protocol):
    """What sees each request of a client to its model, and each answer: the model gateway."""

    @property
    def turns(self) -> int:
        """How many of its requests were answered."""

    @property
    def last(self) -> Verdict | None:
        """What was said of the last of them; None before the first."""

    @property
    def stopped(self) -> RingfenceError | None:
        """Why no more are answered; None while they are."""

    async def wait_stopped(self) -> RingfenceError:
        """Wait until no more are answered; why."""


class Stream(ABC):
    """Reads a client's output as events of ours. Every line is hostile, and may hold anything."""

    session_id: str | None = None
    """The client's session, as soon as it is told."""
    final_text: str = ""
    """What the client said last."""
    structured_output: object = None

    def __init__(self) -> None:
        self.seen = Seen()
        """What tells how it ended (`ending_of`)."""

    @abstractmethod
    def take(self, line: Line) -> list[Event]:
        """The events of a line, cut and bounded by the runtime. What is no JSON object is noted, and is no error.

        Whatever is known at a line is told at that line.
        """

    @abstractmethod
    def flush(self) -> list[Event]:
        """What waited for more."""


class Client(ABC):
    """A client. Pure: it starts nothing."""

    name: ClientName
    title: str
    """Its name for people."""
    tested: tuple[str, str]
    """Oldest and newest version that this release was tried with."""
    install: str
    """How to install it, in a line."""

    @abstractmethod
    def launch(self, task: Task, place: Place) -> Launch:
        """How to start it on a task, unattended."""

    @abstractmethod
    def interactive(self, place: Place, args: Sequence[str]) -> Launch:
        """How to start it on a person's terminal; `args` are the person's own."""

    @abstractmethod
    def stream(self) -> Stream:
        """What reads its output."""

    @abstractmethod
    def state_dir(self, place: Place) -> str:
        """Its own directory inside."""

    @abstractmethod
    def session_files(self) -> tuple[str, ...]:
        """Patterns, below its own directory, of the files that a session can be resumed from."""
