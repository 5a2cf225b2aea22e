"""Docker's own sandbox product: a small virtual machine per sandbox, made and entered by its `sbx` program.

NOT VERIFIED AGAINST THE REAL PRODUCT: it needs a sign-in and hardware virtualisation. Commands and options are those
of its reference (docs.docker.com/reference/cli/sbx, and /docker/sandbox for the older plugin; read 2026-11).

It shows directories only at their own paths: so mode `clone` is refused, and `.git` is shown as it is, read-only. Its
network follows its own policy: so it is used only with `unsafe: [network]`.
"""

import functools
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio

from ringfence.errors import InfrastructureFault, PolicyRefused, SandboxStartFailed
from ringfence.process import host_program, run_process
from ringfence.sandbox.base import Backend, Facts, Fence, Launch, Placement, Traits
from ringfence.sandbox.enforcement import enforcement
from ringfence.sandbox.process_fence import ProcessFence
from ringfence.sandbox.spec import SandboxSpec

_CREATE_S = 300.0
_REMOVE_S = 60.0
_STDERR_BYTES = 4096
_GIT_CONFIG_BYTES = 1024**2
_GIT_SECRET = re.compile(rb"://[^/\s@]+:[^/\s@]+@|extraheader", re.IGNORECASE)
_MB = 1024**2
_ENVIRONMENT = ("HOME", "USER", "LOGNAME", "PATH", "LANG", "DOCKER_CONFIG", "DBUS_SESSION_BUS_ADDRESS")
"""Variables that the program inherits, with XDG_*. It would pass API keys in its environment on to processes inside
(its documentation, "agents"), whatever we restrict."""


class SbxBackend(Backend):
    """A virtual machine of Docker's sandbox product. Not verified against the real product."""

    name = "sbx"
    traits = Traits(takes_image=True, keeps_paths=True, unenforced={"pids": "sbx has no such limit"})

    def __init__(self, program: tuple[str, ...] | None = None) -> None:
        self._named = program
        """The program and the arguments before its subcommands; None: found among the system's programs."""

    async def unavailable(self, spec: SandboxSpec | None = None) -> str | None:  # noqa: ARG002 -- for all alike
        """Why neither `sbx` nor the older `docker sandbox` can be used."""
        if await self._program() is None:
            return (
                "neither `sbx` nor `docker sandbox` is among the system's programs; install Docker Sandboxes and "
                "run `sbx login`"
            )
        return None

    async def _program(self) -> tuple[str, ...] | None:
        return self._named or await _find()

    async def start(self, launch: Launch) -> Fence:
        """Create the machine, then start the guest in it by `exec -i`."""
        program = await self._program()
        if program is None:
            raise SandboxStartFailed(f"sandbox backend 'sbx' cannot be used: {await self.unavailable()}")
        _check(launch)
        name = _name(launch.sandbox_id)
        notes = [*_NOTES, *_unguarded(launch.placement)]
        try:
            done = await run_process(
                [*program, *_create(launch, name)], env=_environment(), timeout_s=_CREATE_S
            )
            if not done.ok:
                reason = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.exit_code}"
                raise SandboxStartFailed(f"`{' '.join(program)} create` failed: {reason[-_STDERR_BYTES:]}")
            return await ProcessFence.start(
                [*program, "exec", "-i", "-w", "/", name, "python3", *launch.argv],
                _facts(launch, tuple(notes)),
                called="its `exec`",
                env=_environment(),
                release=functools.partial(_remove, program, name),
            )
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _remove(program, name)
            raise

    async def remove_leftovers(self, sandbox_ids: frozenset[str], *, dry_run: bool = False) -> list[str]:
        """Remove the machines of these sandboxes; those that do not exist any more are not named."""
        program = await self._program()
        names = [_name(sandbox_id) for sandbox_id in sorted(sandbox_ids)]
        if program is None or dry_run:
            return []
        return [name for name in names if await _remove(program, name)]


_NOTES = (
    "backend sbx is NOT VERIFIED against the real product",
    "UNSAFE: the network is what sbx's own policy allows",
)


async def _find() -> tuple[str, ...] | None:
    """Find the program, not by PATH: an activated environment puts the workspace on it, where an agent writes."""
    with suppress(InfrastructureFault):
        return (host_program("sbx"),)
    with suppress(InfrastructureFault):
        docker = host_program("docker")
        if (await run_process([docker, "sandbox", "version"], env=_environment(), timeout_s=10.0)).ok:
            return (docker, "sandbox")
    return None


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name in _ENVIRONMENT or name.startswith("XDG_")
    }


def _name(sandbox_id: str) -> str:
    return f"ringfence-{sandbox_id}"


def _create(launch: Launch, name: str) -> list[str]:
    """Arguments of `create`; its agent `shell` starts nothing by itself."""
    spec, placement = launch.spec, launch.placement
    arguments = ["create", "--quiet", "--name", name]
    arguments += ["--memory", f"{int(spec.memory) // _MB}m", "--cpus", f"{int(spec.cpus)}"]
    if spec.image is not None:
        arguments += ["--template", spec.image]
    paths = (
        [_path(placement.workspace, read_only=placement.workspace_read_only)] if placement.workspace else []
    )
    return [*arguments, "shell", *paths, *(_path(path, read_only=True) for path in _read_only(placement))]


def _path(path: Path, *, read_only: bool) -> str:
    return f"{path}:ro" if read_only else str(path)


def _read_only(placement: Placement) -> list[Path]:
    """Paths of the workspace to show read-only; a mount needs a path that exists."""
    if placement.workspace is None or placement.workspace_read_only:
        return []
    targets = {_guarded(mount.target, placement.workspace) for mount in placement.mounts}
    return sorted(path for path in targets if path.is_relative_to(placement.workspace) and path.exists())


def _guarded(target: Path, workspace: Path) -> Path:
    """No private git directory can be mounted on `.git`, so that all of `.git` is read-only instead."""
    return workspace / ".git" if target.is_relative_to(workspace / ".git") else target


def _unguarded(placement: Placement) -> Iterator[str]:
    absent = [str(mount.target) for mount in placement.mounts if not mount.target.exists()]
    if absent and not placement.workspace_read_only:
        yield f"sbx cannot keep the agent from creating what the diff then reports: {', '.join(absent[:10])}"


def _check(launch: Launch) -> None:
    """Refuse what the product cannot do.

    Raises:
        PolicyRefused: The text names an alternative.
    """
    spec, placement = launch.spec, launch.placement
    if "network" not in spec.unsafe:
        raise PolicyRefused(
            "backend 'sbx' has a network by its own policy, not none; accept that with `unsafe: [network]`, "
            "or use --sandbox docker or bubblewrap",
            rule="network",
        )
    if placement.workspace != placement.workspace_source:
        raise PolicyRefused(
            "backend 'sbx' shows a directory only at its own path, so mode 'clone' cannot be had; "
            "use --mode bind or read_only",
            rule="sbx-clone",
        )
    enforcement(spec, SbxBackend.traits.unenforced)
    if spec.cpus != int(spec.cpus):
        raise PolicyRefused(
            f"sbx gives whole processors, not {spec.cpus:g}; ask for a whole number", rule="limits-enforced"
        )
    if spec.mounts:
        raise PolicyRefused(
            "backend 'sbx' shows directories only at their own path; leave out `mounts`", rule="sbx-mounts"
        )
    _check_git(placement)


def _check_git(placement: Placement) -> None:
    config = placement.workspace / ".git" / "config" if placement.workspace else None
    with suppress(OSError):
        if config is not None:
            with config.open("rb") as file:
                if _GIT_SECRET.search(file.read(_GIT_CONFIG_BYTES)):
                    raise PolicyRefused(
                        f"{str(config)!r} holds a credential, and sbx would show it inside; move it to a credential "
                        "helper, or use --sandbox docker or bubblewrap",
                        rule="sbx-git-credential",
                    )


def _facts(launch: Launch, notes: tuple[str, ...]) -> Facts:
    placement = launch.placement
    is_written = placement.workspace is not None and not placement.workspace_read_only
    return Facts(
        backend="sbx",
        enforced={"memory": "kernel", "cpus": "kernel", "pids": "soft", "disk": "soft"},
        process_limit=launch.spec.pids,
        environment={
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/home/agent",
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",  # noqa: S108 -- inside
            "RINGFENCE": launch.sandbox_id,
        },
        watched_paths=(str(placement.workspace),) if is_written else (),
        notes=notes,
        image=launch.spec.image,
        engine="sbx",
    )


async def _remove(program: tuple[str, ...], name: str) -> bool:
    """Whether there was one and it was removed. The older plugin does not ask, and has no `--force`."""
    arguments = ["rm", name] if program[-1] == "sandbox" else ["rm", "--force", name]
    with suppress(InfrastructureFault):
        return (await run_process([*program, *arguments], env=_environment(), timeout_s=_REMOVE_S)).ok
    return False
