"""The contract of a sandbox backend: start the guest, report whether it lives, kill it, clean up after a crash.

Everything else (exec, files, signals, timeouts, stats) is implemented once, on top of the guest's protocol.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Literal

import anyio
from anyio.abc import ByteStream

from ringfence.errors import DeathReason, RingfenceError, SandboxStartFailed
from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.sandbox.spec import SandboxSpec, WorkspaceMode

Enforcement = Literal["kernel", "soft", "none"]
UploadScope = Literal["none", "git", "all"]


@frozen
class Placement:
    """Where the workspace and the identity of a sandbox come from; made by `sandbox.workspace`."""

    uid: int
    """Host uid of everything inside; never 0."""
    gid: int
    workspace: Path | None
    """Path inside (and, in mode `bind`, on the host)."""
    workspace_source: Path | None
    """Directory on the host that is shown there; differs from `workspace` in mode `clone`."""
    workspace_read_only: bool = False
    mounts: tuple["BindMount", ...] = ()
    """Further mounts upon the workspace, in order: the private git directory, protected files."""
    upload: UploadScope = "none"
    """The part of the source that is uploaded at the start to an engine that does not see this machine's files: its
    git directory, or all of it. Then nothing is mounted; `mounts` name the files that are restored if they changed."""
    is_downloaded: bool = False
    """Whether the upload is downloaded at the end and replaces the source."""
    is_idmapped: bool = False
    """Whether an idmapped mount makes root's files in the source `uid`'s inside; files made there belong to root."""

    @property
    def mode(self) -> "WorkspaceMode | None":
        """How the workspace is shown; None without one."""
        if self.workspace is None:
            return None
        if self.workspace_read_only:
            return "read_only"
        return "bind" if self.workspace == self.workspace_source else "clone"


@frozen
class BindMount:
    """A host path mounted on a path inside, on top of what is there."""

    source: Path
    target: Path
    read_only: bool


@frozen
class Launch:
    """One start of a sandbox: all that a backend needs to know for it."""

    sandbox_id: str
    spec: "SandboxSpec"
    placement: Placement
    argv: tuple[str, ...]
    """Arguments of the guest's interpreter, after the interpreter itself."""
    run_id: str | None = None
    """The run that the sandbox belongs to; a label on everything that a crash could leave behind."""
    volume: "Volume | None" = None
    """A volume of this backend that holds the workspace, to be mounted where `placement` says."""


@frozen
class EndReason:
    """Why a sandbox has ended."""

    reason: DeathReason
    detail: str
    stderr: str = ""
    """The end of the stderr of the fence's own programs or of the guest's interpreter, with an explanation."""

    def __str__(self) -> str:
        return f"{self.detail}: {self.stderr}" if self.stderr else self.detail


@frozen
class Usage:
    """The total usage of all processes inside, by the kernel's counters; None if there is no counter."""

    memory_bytes: int | None = None
    cpu_s: float | None = None
    pids: int | None = None
    oom_kills: int | None = None
    forks_refused: int | None = None
    """How often a process could not be started because of the limit on processes."""

    def completed_by(self, other: "Usage") -> "Usage":
        """This usage, with missing values filled in from another one."""
        return replace(other, **{name: value for name, value in asdict(self).items() if value is not None})


@frozen
class Facts:
    """Properties of a started sandbox."""

    backend: str = ""
    """Name of the backend that made it."""
    enforced: Mapping[str, Enforcement] = field(default_factory=dict)
    is_fence: bool = True
    """False for the bare host."""
    home: str = "/home/agent"
    """HOME inside."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment of every command inside: PATH, HOME, LANG, TMPDIR, ..."""
    watched_paths: tuple[str, ...] = ()
    """Directories whose growth counts towards the disk limit."""
    tmpfs_paths: tuple[str, ...] = ()
    """File systems inside that are held in memory."""
    process_limit: int | None = None
    """Each command gets this as RLIMIT_NPROC, where that is how `pids` is enforced."""
    notes: tuple[str, ...] = ()
    """Notes for the user: toolchains shown, limits that are soft, ..."""
    image: str | None = None
    """The image it was made from and its digest, for backends that use one."""
    engine: str | None = None
    """Product and version of the container engine, if there is one."""
    silence_limit_s: float | None = None
    """The guest exits when the host has sent nothing for this long. Set where the stream passes through a program that
    can die without closing the stream. None: the kernel notifies the guest."""
    masks_guest: bool = False
    """Whether the guest has to mask its files below /proc; a guest that cannot is refused."""
    filters_guest: bool = False
    """Whether the guest has to put a system call filter on itself; a guest that cannot is refused."""
    laps_ms: Mapping[str, float] = field(default_factory=dict)
    """How long an engine took for each step: `connect`, `create`, `attach`, `start`."""


class Fence(ABC):
    """One running fence with a guest in it. Owned by exactly one `Sandbox`, which kills it.

    Attributes:
        facts: Its properties.
        stream: The guest's stdin and stdout. Readers must treat every byte as hostile. Only `kill` closes it.
    """

    facts: Facts
    stream: ByteStream

    @abstractmethod
    async def wait(self) -> EndReason:
        """Wait until the fence is gone and return the reason; after `kill`, return at once."""

    @abstractmethod
    async def kill(self) -> str | None:
        """Kill everything inside, close the stream and free what the fence held.

        Takes a bounded time, and accepts a dead fence. May be called repeatedly and concurrently: each call waits until
        the fence is killed and returns the same value.

        Returns:
            None if everything inside is dead; else a text for the user that names what may still be alive, and why.
        """

    async def usage(self) -> Usage:
        """The current usage of everything inside, as the kernel reports it; empty where it reports none."""
        return Usage()


class Volume(ABC):
    """Storage of a backend that does not see the host's files; it holds a workspace while its sandbox is open.

    `put` and `get` move tar streams with one directory `tar.TOP` in them. The code above packs and unpacks those; a
    volume only moves bytes, which it bounds in time. Its maker owns it, and removes it after its
    sandbox.

    Attributes:
        name: Name under which the backend finds it.
        uid: Owner that the files in it should have, as the backend counts.
        gid: Group that they should have.
    """

    name: str
    uid: int
    gid: int

    async def keep_alive(self) -> None:
        """Keep the way into the empty volume open while a sandbox waits for a workspace, until this is cancelled."""
        await anyio.sleep_forever()

    @abstractmethod
    async def put(self, file: BinaryIO) -> None:
        """Unpack a tar file in the empty volume, with the owners that it names.

        Raises:
            InfrastructureFault: It did not arrive whole.
        """

    @abstractmethod
    async def get(self, file: BinaryIO, *, limit_bytes: int) -> None:
        """Write the contents of the volume to a tar file. Called when everything in the sandbox is dead.

        Raises:
            LimitReached: It is larger than `limit_bytes`.
            InfrastructureFault: It did not arrive whole.
        """

    @abstractmethod
    async def remove(self) -> None:
        """Remove the volume and its contents; what cannot be removed now is left to `Backend.remove_leftovers`."""


@frozen
class Traits:
    """What a backend can do: on every machine (`Backend.traits`), and for one spec on this one (`Backend.examine`)."""

    is_fence: bool = True
    """False for the bare host, which is chosen only by name."""
    needs_image: bool = False
    """Whether sandboxes are made from an image, which a spec must name, and have a container engine's settings."""
    unseen: str | None = None
    """Why the host's directories cannot be mounted, so that workspaces are uploaded and downloaded; None if they can."""
    unenforced: Mapping[str, str] = field(default_factory=dict)
    """Which of `memory`, `cpus` and `pids` the kernel would not enforce, and why."""

    @property
    def sees_host_files(self) -> bool:
        """Whether the host's directories can be mounted."""
        return self.unseen is None


@frozen
class AccessReport:
    """What a backend's service grants to this user."""

    facts: Mapping[str, str]
    """Name and state of what sandboxes depend on there."""
    missing: tuple[str, ...]
    """The permissions that are needed and not granted, by name."""
    manifest: str
    """What an administrator of the service applies to grant exactly what is needed."""


class Backend(ABC):
    """One way of making fences."""

    name: str
    traits: ClassVar[Traits] = Traits()
    """The traits that hold on every machine."""

    @abstractmethod
    async def start(self, launch: Launch) -> Fence:
        """Start the guest inside a new fence.

        Raises:
            SandboxStartFailed: With what to do about it.
            PolicyRefused: An explicit limit cannot be enforced.
        """

    @abstractmethod
    async def unavailable(self, spec: "SandboxSpec | None" = None) -> RingfenceError | None:
        """Why this backend cannot be used on this machine, with what to install or mend; None if it can.

        Args:
            spec: For what, where that matters: which engine, which image.

        Returns:
            The error, which is not raised: its class says what is to be mended, such as a file or a credential.
        """

    async def examine(self, spec: "SandboxSpec") -> Traits:  # noqa: ARG002 -- for others
        """The traits that hold for a spec on this machine.

        Raises:
            RingfenceError: A program that it depends on does not answer.
        """
        return self.traits

    async def image_id(self, spec: "SandboxSpec") -> str | None:  # noqa: ARG002 -- for others
        """The id of the image that a spec names now; None if it is known only after the start of a sandbox.

        Raises:
            RingfenceError: There is no such image, or the engine does not answer.
        """
        return None

    async def examine_access(self, spec: "SandboxSpec") -> AccessReport | None:  # noqa: ARG002 -- for others
        """What the service grants to this user; None for a backend whose service knows no permissions.

        Args:
            spec: For which service, and which part of it.

        Raises:
            RingfenceError: It cannot be reached, or does not accept the credentials.
        """
        return None

    async def make_volume(self, launch: Launch) -> Volume:  # noqa: ARG002 -- for others
        """Make an empty volume for a launch, where `examine` found that host files are not seen.

        Raises:
            PolicyRefused: It cannot do what the launch asks for.
            SandboxStartFailed: It cannot be made.
        """
        raise SandboxStartFailed(f"backend {self.name!r} sees this machine's files, and makes no volumes")

    async def remove_leftovers(
        self,
        sandbox_ids: frozenset[str],  # noqa: ARG002 -- for backends that leave things
        *,
        dry_run: bool = False,  # noqa: ARG002 -- as above
    ) -> list[str]:
        """Remove leftovers of the given sandboxes, and of all sandboxes whose host processes are known to be dead.

        Args:
            sandbox_ids: Ids of sandboxes that are known to be dead.
            dry_run: Remove nothing.

        Returns:
            The names of the things that were removed, or would be.
        """
        return []
