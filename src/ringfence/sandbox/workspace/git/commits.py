"""Imports commits made inside into the user's repository under `refs/ringfence/<run>/`.

The tips are read on the host, from files (`refs`). Their objects come as a pack, made by git in a sandbox: it uses a new
git directory, with our own configuration, and only reads the agent's object database. So none of the agent's remotes,
helpers, hooks or aliases takes effect, and git cannot fetch a missing object.

On the host nothing in the pack is trusted. It is unpacked into a git directory that ringfence made; every object is
checked, and every commit must be connected to the user's objects. Only then is it copied among these, and refs are
made that no branch follows. If the user's repository cannot be written, the commits are kept beside the run.
"""

import os
import secrets
import shlex
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import anyio.to_thread

from ringfence.errors import InfrastructureFault, SandboxFileError, next_step
from ringfence.frozen import frozen
from ringfence.sandbox.result import ExecResult
from ringfence.sandbox.workspace.git.command import ENVIRONMENT, Git, clean_config
from ringfence.sandbox.workspace.git.layout import GitLayout, find_git, read_small
from ringfence.sandbox.workspace.git.merge import CommittedFile, committed_files
from ringfence.sandbox.workspace.git.packs import copy_packs, quarantine, take_pack
from ringfence.sandbox.workspace.git.private import PrivateGit
from ringfence.sandbox.workspace.git.refs import Refs, is_ref_name, read_new_tips
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.tree import Tree

NOT_TAKEN = "commits made inside were not imported"
PACK_LIMIT_BYTES = 512 * 1024**2
_EXPORT_S = 120.0
_CONNECTED_S = 300.0
_SHOWN = 5
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin"
_EXPORT_CONFIG = """[core]
	hooksPath = /dev/null
	fsmonitor = false
	bigFileThreshold = 8m
	commitGraph = false
	multiPackIndex = false
"""
_EXPORT = """set -e; umask 077; mkdir -p "$1/refs"; printf %s "$2" >"$1/config"
printf '%s\\n' 'ref: refs/heads/none' >"$1/HEAD"
git cat-file --batch-check='%(rest)%(objectname)' >"$1/there"
while read -r line; do case $line in *" missing") ;; *) printf '%s\\n' "$line" ;; esac; done <"$1/there" >"$1/wanted"
exec git pack-objects --revs --thin --delta-base-offset --stdout -q <"$1/wanted" >"$1/pack"
"""
"""Shell script: make the git directory `$1` with configuration `$2`, and in it a pack of the existing objects that
stdin names.

A line `ID ^` excludes the object and everything reachable from it.
"""


class Inside(Protocol):
    """The part of `Sandbox` that is used here."""

    async def run(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes = b"",
        output_limit_bytes: int = 1_000_000,
    ) -> ExecResult:
        """Run a command."""

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file inside."""

    async def read_file(self, path: str, *, limit_bytes: int) -> bytes:
        """Read a file inside."""


@frozen
class ImportedCommits:
    """The imported commits of a run."""

    refs: dict[str, str]
    """Refs created in the user's repository, and the commit of each."""
    notes: tuple[str, ...] = ()
    """Notes on commits that were not imported, and why."""
    committed: tuple[CommittedFile, ...] = ()
    """Files that the commits change, including commits that are kept beside the run."""


async def has_new_commits(private: PrivateGit) -> bool:
    """Whether a private git directory may have commits to import; also true if it cannot be read completely."""
    tips, notes = await _new_tips(private)
    return bool(tips or notes)


async def _new_tips(private: PrivateGit) -> tuple[dict[str, str], list[str]]:
    return await Actor.current().call(lambda: read_new_tips(private.directory, private.refs))


async def import_commits(
    sandbox: Inside,
    private: PrivateGit,
    *,
    run_dir: Path,
    actor: Actor,
    protect: Collection[str] = (),
) -> ImportedCommits:
    """Import the new commits of a private git directory into the user's repository.

    Args:
        sandbox: Any sandbox that shows the private git directory and runs none of the agent's programs.
        private: The agent's git directory.
        run_dir: The run's directory, named by its id. Commits that cannot be stored are kept in it.
        actor: The user as which the user's repository is written.
        protect: Patterns of paths that the agent may not write.
    """
    tips, notes = await _new_tips(private)
    if not tips:
        return ImportedCommits({}, tuple(notes))
    try:
        pack = await _export(sandbox, private, tips.values())
        out = await import_pack(pack, tips, private, run_dir=run_dir, actor=actor, protect=protect)
    except (SandboxFileError, InfrastructureFault, OSError) as exc:
        return ImportedCommits({}, (*notes, f"{NOT_TAKEN}: {exc}"))
    return replace(out, notes=(*notes, *out.notes))


async def _export(sandbox: Inside, private: PrivateGit, tips: Collection[str]) -> bytes:
    """Make git in a sandbox pack the objects that the user does not have."""
    rebuilt = f"/tmp/ringfence-{secrets.token_hex(8)}"  # noqa: S108 - inside the sandbox
    shallow = await Actor.current().call(lambda: read_small(private.layout.common, b"shallow"))
    if shallow is not None:
        await sandbox.write_file(f"{rebuilt}/shallow", shallow)
    wanted = [*tips, *(f"{commit} ^" for commit in private.refs.commits())]
    objects = {"GIT_DIR": rebuilt, "GIT_OBJECT_DIRECTORY": str(private.inside / "objects")}
    made = await sandbox.run(
        ["/bin/sh", "-c", _EXPORT, "sh", rebuilt, clean_config(private.refs.object_format) + _EXPORT_CONFIG],
        stdin="".join(f"{line}\n" for line in wanted).encode(),
        env={**ENVIRONMENT, "PATH": _PATH, **objects},
        cwd="/",
        timeout_s=_EXPORT_S,
    )
    if made.ended_by == "timeout":
        raise InfrastructureFault(f"git did not finish packing them within {_EXPORT_S:g} s")
    if not made.ok:
        raise InfrastructureFault(repr(made.stderr.strip()[-300:]))
    return await sandbox.read_file(f"{rebuilt}/pack", limit_bytes=PACK_LIMIT_BYTES)


async def import_pack(
    pack: bytes,
    tips: Mapping[str, str],
    private: PrivateGit,
    *,
    run_dir: Path,
    actor: Actor,
    protect: Collection[str] = (),
) -> ImportedCommits:
    """Check a pack and copy its commits to the user's repository, or keep them beside the run.

    Args:
        pack: A pack of the objects that the user does not have.
        tips: The branches and HEAD, and the object that each points at.
        private: The git directory that they come from.
        run_dir: As for `import_commits`.
        actor: As for `import_commits`.
        protect: As for `import_commits`.

    Raises:
        InfrastructureFault: It is not valid; nothing was copied.
    """
    layout, base = private.layout, private.refs
    why_not = await actor.call(lambda: unsafe_to_write(layout, run_dir.name))
    if why_not is not None:
        raise InfrastructureFault(why_not)
    async with quarantine(layout, base, actor) as git:
        await take_pack(git, pack)
        found, notes = await _new_commits(git, tips, run_dir.name)
        if not found:
            return ImportedCommits({}, tuple(notes))
        committed = await committed_files(
            git, base.head_commit(), found, place=private.place, protect=protect
        )
        stored, complaints = await _store(git, found, layout, actor)
        left = {name: commit for name, commit in found.items() if name not in stored}
        if left:
            # Refs exist by now: the run must report them even if this fails.
            try:
                file = run_dir / _bundle_name(private.place)
                complaints.append(await _keep_commits(git, left, base, file=file))
            except InfrastructureFault as exc:
                names = ", ".join(repr(name) for name in sorted(left)[:_SHOWN])
                complaints.append(f"commits of {len(left)} branches were not imported ({names}): {exc}")
    return ImportedCommits(stored, (*notes, *complaints), tuple(committed))


async def _new_commits(git: Git, tips: Mapping[str, str], run: str) -> tuple[dict[str, str], list[str]]:
    """The refs to create, each with its commit, and notes on tips that are not commits; all their objects exist."""
    asked = "".join(f"{tip}\n" for tip in tips.values()).encode()
    answer = await git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked)
    commits = {line.split()[1] for line in answer.stdout.decode().splitlines() if line.startswith("commit ")}
    refs = {name: f"refs/ringfence/{run}/{name.removeprefix('refs/heads/')}" for name in tips}
    found = {name: tip for name, tip in tips.items() if tip in commits and is_ref_name(refs[name])}
    notes = [f"{name!r} leads to no commit and was not imported" for name in tips if name not in found]
    connected = ("rev-list", "--objects", "--no-object-names", "--stdin", "--not", "--all")
    wanted = "".join(f"{tip}\n" for tip in found.values()).encode()
    new = (await git.run(*connected, stdin=wanted, timeout_s=_CONNECTED_S)).stdout if found else b""
    return {refs[name]: tip for name, tip in found.items() if tip.encode() in new}, notes


async def _store(
    git: Git, found: Mapping[str, str], layout: GitLayout, actor: Actor
) -> tuple[dict[str, str], list[str]]:
    """Write commits to the user's repository; return the refs that were created, and why others were not."""
    try:
        await actor.call(lambda: adopt_packs(git, layout))
    except OSError as exc:
        return {}, [f"the repository {str(layout.common)!r} cannot take commits: {exc.strerror}"]
    users = Git(layout.directory, actor=actor)
    stored, complaints = {}, []
    for target, commit in found.items():
        result = await users.run("update-ref", "--no-deref", target, commit, accept=(0, 1, 128))
        if result.ok:
            stored[target] = commit
        else:
            said = result.stderr.decode("utf-8", "replace").strip()[:200]
            complaints.append(f"{target!r} could not be made: {said!r}")
    return stored, complaints


def adopt_packs(git: Git, layout: GitLayout) -> None:
    """Copy the packs of a git directory that ringfence made among the user's.

    Raises:
        OSError: They cannot be written, or a link is on the way.
    """
    root = layout.workspace if layout.common.is_relative_to(layout.workspace) else layout.common
    place = os.fsencode((layout.objects / "pack").relative_to(root))
    copy_packs(git.directory / "objects/pack", root, place)


async def _keep_commits(git: Git, refs: Mapping[str, str], base: Refs, *, file: Path) -> str:
    """Keep commits that the user's repository cannot store in a bundle; return a note for the user about it."""
    for name, commit in refs.items():
        await git.run("update-ref", "--no-deref", name, commit)
    wanted = [*refs, *(f"^{commit}" for commit in base.commits())]
    made = await git.run(
        *("bundle", "create", "--quiet", "-", "--ignore-missing", "--stdin"),
        stdin="".join(f"{line}\n" for line in wanted).encode("utf-8", "surrogateescape"),
        timeout_s=600.0,
        output_limit_bytes=PACK_LIMIT_BYTES,
    )
    try:
        await anyio.to_thread.run_sync(file.write_bytes, made.stdout)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
    fetch = f"git fetch {shlex.quote(str(file))} 'refs/ringfence/*:refs/ringfence/*'"
    return f"commits made inside are kept beside the run; to have them, run `{fetch}` in a clone of your own"


def _bundle_name(place: str) -> str:
    """The name of the bundle for the repository at `place` in the workspace; empty: the workspace's own."""
    return f"commits-{quote(os.fsencode(place), safe='')}.bundle" if place else "commits.bundle"


def unsafe_to_write(layout: GitLayout, run: str) -> str | None:
    """Why nothing is written to the user's repository; None if every place to write belongs to its owner."""
    if layout.refused is not None:
        return layout.refused
    if find_git(layout.workspace) != layout:
        return f"{str(layout.workspace / '.git')!r} is not the repository any more that the run began with"
    return unsafe_places(layout, ("refs", "refs/ringfence", f"refs/ringfence/{run}"))


def unsafe_places(layout: GitLayout, refs: Sequence[str]) -> str | None:
    """Why objects and refs are not written; None if each place for them is a real directory of the owner.

    Args:
        layout: The user's repository.
        refs: Directories of the refs to be written.
    """
    folders = ("objects", "objects/pack", *refs, "logs", *(f"logs/{name}" for name in refs))
    owner = layout.workspace.stat().st_uid
    with Tree(layout.common) as tree:
        for path in (*folders, "packed-refs", "HEAD", "config"):
            is_kind = stat.S_ISDIR if path in folders else stat.S_ISREG
            status = tree.lstat(os.fsencode(path))
            if status is None:
                continue
            if not is_kind(status.st_mode) or status.st_uid != owner:
                return (
                    f"{str(layout.common / path)!r} is a link, or not the workspace owner's; put a"
                    f" {'directory' if path in folders else 'file'} of your own in its place"
                )
    return None
