"""The sandbox of an evaluation: its configuration, and a holder that opens it in one task and closes it in another.

inspect_ai, mini-swe-agent and SWE-ReX start a sandbox with one call and end it with another one, and take its
configuration from a task, which may be a third party's. What this module accepts from there can describe and tighten a
sandbox; a bind mount, the bare host, a container network and soft limits cannot be expressed.
"""

import asyncio
import errno
import logging
from pathlib import Path
from typing import Any

import anyio
from pydantic import Field, PositiveFloat, PositiveInt

from ringfence.config import Effective, Flag, load
from ringfence.config.arguments import Arguments
from ringfence.config.egress import Egress
from ringfence.config.units import ByteCount, Seconds
from ringfence.errors import PolicyRefused, RingfenceError, SandboxFileError, UsageError
from ringfence.job.garbage_collection import abandoned_directories, remove_all
from ringfence.job.sandbox_spec import spec_of
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.registry import backend_names, get_backend, is_fence
from ringfence.sandbox.workspace.run_as import clear_scratch_directories
from ringfence.sandbox.workspace.standalone import SANDBOX_PREFIX

__all__ = ["EvaluationSandbox"]

_LOG = logging.getLogger("ringfence")
MERGED_STREAMS = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh")
"""Before a command: its standard error is part of its standard output, in the order in which it was written."""
_YOUNG_S = 60.0
"""A younger directory may be one that its process has not locked yet."""


class EvaluationSandbox(Arguments):
    """The sandbox of one sample or agent. Names and meanings are those of the keys of `sandbox` in ringfence.yaml.

    Fields that are not set are as in the user's own configuration and the variables `RINGFENCE_*`.

    Raises:
        UsageError: An argument is unknown, or its value does not fit.
    """

    backend: str = "auto"
    """`bubblewrap`, `docker`, ...; `auto` chooses. Never `host`."""
    image: str | None = None
    """Container image, by tag or digest; for backends that use one."""
    workspace: Path | None = None
    """Absolute path of a directory; each sandbox starts with a private copy of it. None: an empty directory."""
    memory: ByteCount | None = None
    """Total memory of everything inside."""
    cpus: PositiveFloat | None = None
    """Processor time per second of wall clock."""
    pids: PositiveInt | None = None
    """Processes and threads inside."""
    disk: ByteCount | None = None
    """Growth of workspace and home."""
    tmp: ByteCount | None = None
    """Size of the private `/tmp`; it counts as memory."""
    ttl: Seconds | None = None
    """The sandbox ends itself after this time."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment of every command inside. Never put a secret here."""
    setup: tuple[str, ...] = ()
    """Shell commands that run once inside, in the workspace, before anything else."""
    egress: tuple[Any, ...] = ()
    """Hosts that can be reached from inside: rules as in `egress.allow`."""

    def __hash__(self) -> int:
        """Harnesses keep configurations in sets, and a mapping has no hash of its own."""
        return hash(self.model_dump_json())

    def flags(self) -> list[Flag]:
        """The fields that were set, as settings."""
        named = {*EvaluationSandbox.model_fields} - {"workspace", "egress"}
        values = self.model_dump(mode="json", include=self.model_fields_set & named)
        found = [
            Flag(f"sandbox.{name}", f"{name} of the task's sandbox", value) for name, value in values.items()
        ]
        if self.egress:
            found.append(Flag("egress.allow", "egress of the task's sandbox", list(self.egress)))
        return found


def evaluation_spec(
    config: EvaluationSandbox | None = None, file: Path | None = None, *, is_logged: bool = True
) -> SandboxSpec:
    """The spec of an evaluation's sandbox.

    Args:
        config: What the task or the harness's configuration sets.
        file: A project's `ringfence.yaml`, which can only tighten until it is trusted (`ringfence config trust`).
        is_logged: Whether what is weaker than the default is logged.

    Raises:
        ConfigurationError, UsageError: A value is not valid, or has no effect.
        PolicyRefused: The configuration names the bare host.
    """
    config = config or EvaluationSandbox()
    effective = load(file.parent if file is not None else None, flags=config.flags())
    if file is not None:
        _expect_file(effective, file)
    backend = effective.settings.sandbox.backend
    if not is_fence(backend):
        raise PolicyRefused(
            f"backend {backend!r} (set by {effective.origins['sandbox.backend']}) is not allowed for an evaluation:"
            f" it has no fence; name one of {', '.join(filter(is_fence, backend_names()))}, or use the harness's own"
            " local environment",
            rule="evaluation-unfenced",
        )
    for what, by in effective.loosenings() if is_logged else ():
        _LOG.warning("%s (set by %s)", what, by)
    if config.workspace is not None and not config.workspace.is_absolute():
        raise UsageError(
            f"workspace={str(config.workspace)!r} of the task's sandbox is relative; give an absolute path, such as"
            " Path(__file__).parent / 'files'"
        )
    spec = spec_of(effective, config.workspace)
    return spec.model_copy(
        update={"mode": None if config.workspace is None else "clone", "egress": _own_egress(spec, effective)}
    )


def _expect_file(effective: Effective, file: Path) -> None:
    if all(found.document.file.resolve() != file.resolve() for found in effective.files):
        raise UsageError(f"{str(file)!r} is not a configuration that ringfence reads; name it ringfence.yaml")


def _own_egress(spec: SandboxSpec, effective: Effective) -> Egress:
    """What an evaluation's sandbox may reach: without what the user's own configuration grants to runs only.

    A project file's grant stays, and opening the sandbox reports that it has no effect.
    """
    is_users = {
        key: effective.origins[key].kind in ("user", "default") for key in ("egress.allow", "egress.swap")
    }
    allow = [rule for rule in spec.egress.allow if not (rule.preset == "model" and is_users["egress.allow"])]
    return Egress(
        allow=tuple(allow), deny=spec.egress.deny, swap=() if is_users["egress.swap"] else spec.egress.swap
    )


class HeldSandbox:
    """An open sandbox that a task of its own holds, so that it can be closed in another task than it was opened in.

    It needs asyncio. It ends with the event loop at the latest.
    """

    def __init__(self, sandbox: Sandbox, holder: "asyncio.Task[None]", leave: asyncio.Event) -> None:
        self.sandbox = sandbox
        self._holder = holder
        self._leave = leave

    @classmethod
    async def open(cls, spec: SandboxSpec) -> "HeldSandbox":
        """Open a sandbox. If this is cancelled, nothing of it is left.

        Raises:
            UsageError: The event loop is not one of asyncio.
            RingfenceError: As `Sandbox.open`.
        """
        expect_asyncio()
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        leave = asyncio.Event()
        holder = asyncio.create_task(_hold(spec, opened, leave), name="ringfence: sandbox")
        try:
            await asyncio.wait([opened, holder], return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                await holder  # raises why it could not be opened
            return cls(opened.result(), holder, leave)
        except BaseException:
            holder.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({holder})
            raise

    async def close(self) -> None:
        """End everything inside. A second call does nothing.

        Raises:
            RingfenceError: The sandbox could not be ended in order.
        """
        self._leave.set()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({self._holder})
        if not self._holder.cancelled() and (error := self._holder.exception()) is not None:
            raise error


def expect_asyncio() -> None:
    """Refuse an event loop of another library.

    Raises:
        UsageError: It is not one of asyncio.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError as exc:
        raise UsageError("ringfence needs the event loop of asyncio; unset INSPECT_ASYNC_BACKEND") from exc


async def _hold(spec: SandboxSpec, opened: "asyncio.Future[Any]", leave: asyncio.Event) -> None:
    async with Sandbox.open(spec) as sandbox:
        opened.set_result(sandbox)
        await leave.wait()


def os_error(error: SandboxFileError, path: str) -> OSError:
    """The error that Python raises for a file operation like the one that failed inside."""
    name = "EACCES" if error.errno_name == "EROFS" else error.errno_name
    return OSError(getattr(errno, name, errno.EIO), str(error), path)


async def remove_leftovers(sandbox_id: str | None = None) -> list[str]:
    """Remove what sandboxes of dead processes left, such as containers and private copies; return their names.

    Args:
        sandbox_id: A sandbox that is known to be dead.
    """
    found: list[str] = []
    dead = frozenset({sandbox_id} if sandbox_id else ())
    for name in backend_names():
        try:
            found += await get_backend(name).remove_leftovers(dead)
        except RingfenceError as exc:  # an engine that does not answer; the next command cleans up there
            _LOG.warning("nothing was removed of backend %s: %s", name, exc)
    await clear_scratch_directories()
    abandoned = [path for path in abandoned_directories(_YOUNG_S) if path.name.startswith(SANDBOX_PREFIX)]
    await remove_all(abandoned)
    return [*dict.fromkeys(found), *(str(path) for path in abandoned)]
