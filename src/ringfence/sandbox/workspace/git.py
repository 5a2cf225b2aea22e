"""Git on the host, with everything off that a repository could name for it to run.

Law: git on the host never opens a git directory that an agent could write. The git directories given here are
our own, or (for `update-ref` alone) the user's, which an agent never could write.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.process import ProcessResult, host_program, run_process
from ringfence.sandbox.workspace.actor import Actor

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
)
_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    # An empty list: no transport at all, so a missing object can never start a program.
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_PAGER": "cat",
    # glibc gives memory back after each object fast-import packs: 200,000 calls, 80 % of its time for 50,000
    # files.
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024**2),
    "MALLOC_TOP_PAD_": str(16 * 1024**2),
}
CLEAN_ATTRIBUTES = b"* -text -eol -ident -filter -working-tree-encoding -export-subst !diff\n"
"""`info/attributes` of our own git directories; it outranks every `.gitattributes` of a workspace."""


def git_program() -> str:
    """The system's git, never one that PATH names: an agent may have written it.

    Raises:
        InfrastructureFault: There is none.
    """
    return host_program("git")


class GitGaveUp(InfrastructureFault):
    """A git command took longer, or said more, than is waited for or kept."""


@frozen
class Git:
    """One git directory and how git is run on it."""

    directory: Path
    work_tree: Path | None = None
    actor: Actor = field(default_factory=Actor.current)
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[int, ...] = ()
    """Descriptors that git inherits: a lock among them is held until the last git of a killed caller has ended."""

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
            GitGaveUp: It took too long, or said too much.
            InfrastructureFault: Its exit code is none of `accept`.
        """
        program = git_program()
        env = {
            **_ENVIRONMENT,
            "PATH": f"{Path(program).parent}:/usr/local/bin:/usr/bin:/bin",
            **self.environment,
        }
        env["GIT_DIR"] = str(self.directory)
        if self.work_tree is not None:
            env["GIT_WORK_TREE"] = str(self.work_tree)
        options = [word for option in (*_OFF, *self.options) for word in ("-c", option)]
        result = await run_process(
            [program, *options, *arguments],
            stdin=stdin,
            cwd=self.work_tree or self.directory,
            env=env,
            timeout_s=timeout_s,
            output_limit_bytes=output_limit_bytes,
            user=self.actor.process_user,
            group=self.actor.process_group,
            pass_fds=self.inherited,
        )
        if result.timed_out or result.truncated:
            raise GitGaveUp(_complaint(result, str(arguments[0]), self.directory))
        if result.exit_code not in accept:
            raise InfrastructureFault(_complaint(result, str(arguments[0]), self.directory))
        return result


def _complaint(result: ProcessResult, command: str, directory: Path) -> str:
    if result.timed_out:
        return f"git {command} on {str(directory)!r} took too long and was ended"
    if result.truncated:
        return f"git {command} on {str(directory)!r} gave more output than is kept"
    said = result.stderr.decode("utf-8", "replace").strip().splitlines()
    return (
        f"git {command} on {str(directory)!r} failed with {result.exit_code}: {' / '.join(said[-3:])[:500]!r}"
    )


def write_clean_git_dir(directory: Path, *, object_format: str = "sha1") -> None:
    """Make an empty bare git directory without asking git: no template, so no hooks."""
    for name in ("objects/info", "objects/pack", "refs/heads", "info"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    version = 0 if object_format == "sha1" else 1
    lines = [f"[core]\n\trepositoryformatversion = {version}\n\tfilemode = true\n\tbare = true\n"]
    if version:
        lines.append(f"[extensions]\n\tobjectformat = {object_format}\n")
    (directory / "config").write_text("".join(lines))
    (directory / "HEAD").write_text("ref: refs/heads/none\n")
    (directory / "info" / "attributes").write_bytes(CLEAN_ATTRIBUTES)
