"""Starts git on the host (no other module does), bounded, and with every program that a repository can name disabled.

Invariant: git on the host never opens a git directory that an agent could write. The git directories passed here are
our own, or (for `update-ref` alone) the user's, which an agent never could write. Git receives an agent's work as
objects, and a few bytes of those can demand any amount of memory and time. So the kernel enforces limits on each git
process, and reaching one is an error that names it.
"""

import math
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.process import ProcessLimits, ProcessResult, host_program, run_process
from ringfence.sandbox.workspace.run_as import Actor

_OFF = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.pager=cat",
    "core.sshCommand=false",
    "core.alternateRefsCommand=true",
    "core.quotePath=false",
    "core.protectHFS=false",
    "core.protectNTFS=false",
    "credential.helper=",
    "diff.external=",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "safe.directory=*",
    # Git then takes 45 bytes of memory for each line of a text that it compares, and one byte can be a line. Larger
    # files are compared as binary, packed without deltas and read in pieces.
    "core.bigFileThreshold=8m",
    "pack.threads=4",
)
_THREADS = 4
_OUT_OF_MEMORY = (b"out of memory", b"cannot allocate memory", b"malloc failed", b"realloc failed")
ENVIRONMENT = {
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    # An empty list allows no transport at all, so a missing object can never start a program.
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_PAGER": "cat",
    # Otherwise glibc returns memory after each object that fast-import packs: 200,000 calls, 80 % of its time for
    # 50,000 files.
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024**2),
    "MALLOC_TOP_PAD_": str(16 * 1024**2),
}
CLEAN_ATTRIBUTES = b"* -text -eol -ident -filter -working-tree-encoding -export-subst !diff\n"
"""`info/attributes` of our own git directories; it outranks every `.gitattributes` of a workspace."""
Bound = Literal["time", "output", "memory", "processor time", "file size"]


def git_program() -> str:
    """The path of the system's git, never one found by PATH, as an agent may have written that.

    Raises:
        InfrastructureFault: There is no git.
    """
    return host_program("git")


@frozen
class GitBounds:
    """Resources that one git process may use. Its time and output are limited by each command."""

    memory_bytes: int | None = 1024**3
    """None: no limit, for a git that acts for the user and runs the user's own programs."""
    file_bytes: int = 8 * 1024**3

    def limits(self, timeout_s: float) -> ProcessLimits | None:
        """The same limits as the kernel enforces them, for a command with this time limit."""
        if self.memory_bytes is None:
            return None
        return ProcessLimits(self.memory_bytes, math.ceil(timeout_s * _THREADS), self.file_bytes)


BOUNDS = GitBounds()
"""Bounds for data that an agent could have made."""
LARGE = GitBounds(memory_bytes=4 * 1024**3, file_bytes=64 * 1024**3)
"""Bounds for the user's own history, and for ringfence's own stores as a whole."""
USERS = GitBounds(memory_bytes=None)
"""Bounds for a git that the user requested: `git push` with the user's own hooks and credential helpers."""


class GitBoundReached(InfrastructureFault):
    """A git command was terminated at one of its bounds.

    Args:
        message: Which command, where, and which bound.
        bound: The bound.
    """

    def __init__(self, message: str, *, bound: Bound) -> None:
        super().__init__(message)
        self.bound = bound


async def run_git(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    env: Mapping[str, str],
    actor: Actor,
    timeout_s: float,
    bounds: GitBounds = BOUNDS,
    stdin: bytes = b"",
    output_limit_bytes: int = 64 * 1024**2,
    stop_at_limit: bool = False,
    pass_fds: Sequence[int] = (),
) -> ProcessResult:
    """Start git and wait for its end; every git on the host is started here.

    Args:
        arguments: The arguments after `git`.
        cwd: The working directory.
        env: Its whole environment.
        actor: The user as which it runs.
        timeout_s: Time after which its process group is terminated.
        bounds: Limits on its other resources.
        stdin: Its input.
        output_limit_bytes: Limit for stdout and for stderr each.
        stop_at_limit: Terminate it when it has printed more, instead of dropping the rest.
        pass_fds: Descriptors it inherits.

    Raises:
        InfrastructureFault: There is no git, or it cannot be started.
    """
    return await run_process(
        [git_program(), *arguments],
        stdin=stdin,
        cwd=cwd,
        env=env,
        timeout_s=timeout_s,
        output_limit_bytes=output_limit_bytes,
        stop_at_limit=stop_at_limit,
        user=actor.process_user,
        group=actor.process_group,
        pass_fds=pass_fds,
        limits=bounds.limits(timeout_s),
    )


def reached_bound(result: ProcessResult) -> Bound | None:
    """The bound that terminated a git; None if none did.

    Recognizes the messages about memory of git 2.30 to 2.53, in the locale C.
    """
    if result.timed_out:
        return "time"
    if result.truncated:
        return "output"
    if result.exit_code == 0:
        return None
    said = result.stderr.lower()
    if result.exit_code == -signal.SIGXCPU:
        return "processor time"
    if result.exit_code == -signal.SIGXFSZ or b"file too large" in said:
        return "file size"
    return "memory" if any(words in said for words in _OUT_OF_MEMORY) else None


@frozen
class Git:
    """A git directory and the settings for running git on it."""

    directory: Path
    work_tree: Path | None = None
    actor: Actor = field(default_factory=Actor.current)
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[int, ...] = ()
    """Descriptors that git inherits; a lock among them is held until the last git of a killed caller has exited."""
    bounds: GitBounds = BOUNDS

    async def run(
        self,
        *arguments: str | os.PathLike[str],
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        output_limit_bytes: int = 256 * 1024**2,
        accept: Sequence[int] = (0,),
    ) -> ProcessResult:
        """Run a git command to its end.

        Raises:
            GitBoundReached: It took too long, printed too much, or needed more memory than it may use.
            InfrastructureFault: Its exit code is not in `accept`.
        """
        env = {
            **ENVIRONMENT,
            "PATH": f"{Path(git_program()).parent}:/usr/local/bin:/usr/bin:/bin",
            **self.environment,
        }
        env["GIT_DIR"] = str(self.directory)
        if self.work_tree is not None:
            env["GIT_WORK_TREE"] = str(self.work_tree)
        options = [word for option in (*_OFF, *self.options) for word in ("-c", option)]
        result = await run_git(
            [*options, *arguments],
            stdin=stdin,
            cwd=self.work_tree or self.directory,
            env=env,
            timeout_s=timeout_s,
            output_limit_bytes=output_limit_bytes,
            actor=self.actor,
            pass_fds=self.inherited,
            bounds=self.bounds,
        )
        what = f"git {arguments[0]} on {str(self.directory)!r}"
        bound = reached_bound(result)
        if bound is not None:
            raise GitBoundReached(
                f"{what} {self._describe(bound, timeout_s, output_limit_bytes)}", bound=bound
            )
        if result.exit_code not in accept:
            said = result.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InfrastructureFault(
                f"{what} failed with {result.exit_code}: {' / '.join(said[-3:])[:500]!r}"
            )
        return result

    def _describe(self, bound: Bound, timeout_s: float, output_limit_bytes: int) -> str:
        mebibyte = 1024**2
        return {
            "time": f"took longer than {timeout_s:g} s and was ended",
            "processor time": f"took more processor time than {timeout_s:g} s allow and was ended",
            "output": f"printed more than {output_limit_bytes // mebibyte} MiB, which is its limit",
            "memory": f"needed more memory than its limit, {(self.bounds.memory_bytes or 0) // mebibyte} MiB",
            "file size": f"wrote a file larger than its limit, {self.bounds.file_bytes // mebibyte} MiB",
        }[bound]


def write_clean_git_dir(
    directory: Path, *, object_format: str = "sha1", files: Mapping[str, bytes] | None = None
) -> None:
    """Create a bare git directory without running git: no template, so no hooks.

    Args:
        directory: The directory, which may exist.
        object_format: `sha1` or `sha256`.
        files: Contents of further files, or of HEAD, which otherwise names no branch.
    """
    clean = {
        "config": clean_config(object_format).encode(),
        "HEAD": b"ref: refs/heads/none\n",
        "info/attributes": CLEAN_ATTRIBUTES,
    }
    write_git_dir(directory, {**clean, **(files or {})})


def write_git_dir(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files of a git directory, and create the directories that git requires in one."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


def clean_config(object_format: str) -> str:
    """The configuration of a git directory that ringfence made."""
    core = "[core]\n\trepositoryformatversion = {}\n\tfilemode = true\n\tbare = true\n"
    if object_format == "sha1":
        return core.format(0)
    return core.format(1) + f"[extensions]\n\tobjectformat = {object_format}\n"
