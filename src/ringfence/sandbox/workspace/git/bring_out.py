"""Commits made inside, brought into the user's repository under `refs/ringfence/<run>/`.

The bundle comes from inside (`bundle`), so on the host nothing in it is believed. It is unpacked into a git
directory of ours, every object checked (`--strict`) and every commit found connected to what the user has. Only
then its pack is put among the user's objects and refs are made that no branch follows. Where that cannot be written
to, the commits are kept beside the run.
"""

import os
import secrets
import shlex
import shutil
import stat
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import anyio.to_thread

from ringfence.errors import InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.bundle import (
    BUNDLE_LIMIT_BYTES,
    NOT_TAKEN,
    Bundle,
    Inside,
    make_bundle,
    parse_bundle,
)
from ringfence.sandbox.workspace.git.command import Git, write_clean_git_dir
from ringfence.sandbox.workspace.git.committed import CommittedFile, committed_files
from ringfence.sandbox.workspace.git.layout import GitLayout, find_git, read_small
from ringfence.sandbox.workspace.git.pack import take_pack
from ringfence.sandbox.workspace.git.private import PrivateGit
from ringfence.sandbox.workspace.git.refs import Refs, is_ref_name
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.scratch import scratch_directory
from ringfence.sandbox.workspace.tree import Tree

_CONNECTED_S = 300.0
_SHOWN = 5


def bundle_name(place: str) -> str:
    """What the bundle is called for the repository at `place` in the workspace; empty: its own."""
    return f"commits-{quote(os.fsencode(place), safe='')}.bundle" if place else "commits.bundle"


async def keep_commits(git: Git, refs: Mapping[str, str], base: Refs, *, file: Path) -> str:
    """Keep commits that the user's repository cannot take as a bundle; return what to tell the user about it.

    The bundle is not the one that came out of the sandbox: it is made here, of objects that were checked.

    Args:
        git: A git directory of ours that has the commits.
        refs: The name under which each shall be fetched, and the commit.
        base: What the user has; it is left out.
        file: Where, in the run's directory.

    Raises:
        InfrastructureFault: The bundle could not be made or written.
    """
    for name, commit in refs.items():
        await git.run("update-ref", "--no-deref", name, commit)
    known = sorted({*base.direct.values(), base.head_commit()} - {None}, key=str)
    wanted = "".join(f"{name}\n" for name in refs) + "".join(f"^{commit}\n" for commit in known)
    made = await git.run(
        *("bundle", "create", "--quiet", "-", "--ignore-missing", "--stdin"),
        stdin=wanted.encode("utf-8", "surrogateescape"),
        timeout_s=600.0,
        output_limit_bytes=BUNDLE_LIMIT_BYTES,
    )
    await anyio.to_thread.run_sync(_write, file, made.stdout)
    fetch = f"git fetch {shlex.quote(str(file))} 'refs/ringfence/*:refs/ringfence/*'"
    return f"commits made inside are kept beside the run; to have them, run `{fetch}` in a clone of your own"


def _write(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc


@frozen
class BroughtOut:
    """What came out."""

    refs: dict[str, str]
    """Refs made in the user's repository, and the commit of each."""
    notes: tuple[str, ...] = ()
    """What did not, and why."""
    committed: tuple[CommittedFile, ...] = ()
    """What the commits change, those included that are kept beside the run."""


async def bring_out(
    sandbox: Inside,
    private: PrivateGit,
    *,
    layout: GitLayout,
    run_dir: Path,
    actor: Actor,
    place: str = "",
    protect: Collection[str] = (),
) -> BroughtOut:
    """Bring new commits out of a sandbox.

    Args:
        sandbox: Any sandbox with the private git directory in place, in which nothing of the agent's runs.
        private: The git directory that the agent had.
        layout: The user's repository.
        run_dir: The run's directory, called by its id. Commits that cannot be stored are kept in it.
        actor: On whose behalf the user's repository is written.
        place: Where in the workspace a submodule is; empty for the workspace's own repository.
        protect: Patterns of what the agent may not write.
    """
    bundle, notes = await make_bundle(sandbox, private, layout)
    if bundle is None:
        return BroughtOut({}, tuple(notes))
    try:
        why_not = await actor.call(lambda: unsafe_to_write(layout, run_dir.name))
        if why_not is not None:
            return BroughtOut({}, (*notes, f"{NOT_TAKEN}: {why_not}"))
        out = await import_bundle(
            bundle,
            layout=layout,
            base=private.refs,
            run_dir=run_dir,
            actor=actor,
            object_format=private.object_format,
            place=place,
            protect=protect,
        )
    except (InfrastructureFault, OSError) as exc:
        return BroughtOut({}, (*notes, f"{NOT_TAKEN}: {exc}"))
    return replace(out, notes=(*notes, *out.notes))


async def import_bundle(
    bundle: bytes,
    *,
    layout: GitLayout,
    base: Refs,
    run_dir: Path,
    actor: Actor,
    object_format: str = "sha1",
    place: str = "",
    protect: Collection[str] = (),
) -> BroughtOut:
    """Check a bundle and take its commits over into the user's repository, or keep them beside the run.

    Raises:
        InfrastructureFault: It is not sound; nothing was taken over.
    """
    parsed = parse_bundle(bundle, object_format)
    async with quarantine(layout, base, actor, object_format) as git:
        # Not `git fetch`: up to 2.44 it takes a bundle over without looking at its objects (fsckObjects or
        # not).
        await take_pack(git, parsed.pack)
        found, notes = await _commits(git, parsed, run_dir.name)
        # Every object that the commits lead to is there, either in the bundle or with the user.
        tips = "".join(f"{commit}\n" for commit in found.values())
        connected = ("rev-list", "--objects", "--quiet", "--stdin", "--not", "--all")
        await git.run(*connected, stdin=tips.encode(), timeout_s=_CONNECTED_S)
        committed = await committed_files(git, base.head_commit(), found, place=place, protect=protect)
        stored, complaints = await _store(git, found, layout, actor)
        left = {name: commit for name, commit in found.items() if name not in stored}
        if left:
            # Refs were made by now: whatever happens here, the run says which.
            try:
                complaints.append(await keep_commits(git, left, base, file=run_dir / bundle_name(place)))
            except InfrastructureFault as exc:
                names = ", ".join(repr(name) for name in sorted(left)[:_SHOWN])
                complaints.append(f"commits of {len(left)} branches were not imported ({names}): {exc}")
    return BroughtOut(stored, (*notes, *complaints), tuple(committed))


async def _commits(git: Git, parsed: Bundle, run: str) -> tuple[dict[str, str], list[str]]:
    """The refs to make, each with its commit, and what is none."""
    found, notes = {}, []
    for name, tip in parsed.heads.items():
        commit = await git.run("rev-parse", "--verify", "--quiet", f"{tip}^{{commit}}", accept=(0, 1, 128))
        target = f"refs/ringfence/{run}/{name.removeprefix('refs/heads/')}"
        if commit.ok and is_ref_name(target):
            found[target] = commit.stdout.decode().strip()
        else:
            notes.append(f"{name!r} is no branch with commits and was not taken over")
    return found, notes


async def _store(
    git: Git, found: Mapping[str, str], layout: GitLayout, actor: Actor
) -> tuple[dict[str, str], list[str]]:
    """Write commits to the user's repository: the refs that were made, and why others were not."""
    try:
        await actor.call(lambda: adopt_packs(git.directory / "objects" / "pack", layout))
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


@asynccontextmanager
async def quarantine(layout: GitLayout, base: Refs, actor: Actor, object_format: str) -> AsyncIterator[Git]:
    """A git directory of ours that sees the user's objects and refs as they were, and is thrown away."""
    async with scratch_directory(actor) as directory:

        def make() -> None:
            write_clean_git_dir(directory, object_format=object_format)
            (directory / "packed-refs").write_bytes(base.packed())
            (directory / "objects/info/alternates").write_bytes(os.fsencode(layout.objects) + b"\n")
            shallow = read_small(layout.common, b"shallow")
            if shallow is not None:
                (directory / "shallow").write_bytes(shallow)
            commit = base.head_commit()
            if commit:
                (directory / "refs/heads/ringfence-base").write_text(commit + "\n")

        await actor.call(make)
        yield Git(directory, actor=actor)


def unsafe_to_write(layout: GitLayout, run: str) -> str | None:
    """Why nothing is written to the user's repository; None if all that is written to is its owner's own."""
    if layout.refused is not None:
        return layout.refused
    if find_git(layout.workspace) != layout:
        return f"{str(layout.workspace / '.git')!r} is not the repository any more that the run began with"
    return unsafe_places(layout, ("refs", "refs/ringfence", f"refs/ringfence/{run}"))


def unsafe_places(layout: GitLayout, refs: Sequence[str]) -> str | None:
    """Why objects and refs are not written; None if each place they go to is a real one of the owner's.

    Args:
        layout: The user's repository.
        refs: Directories of refs that are written to.
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


def adopt_packs(source: Path, layout: GitLayout) -> None:
    """Copy packs of `source` among the user's, the index last: without it git does not see the pack."""
    is_inside = layout.common.is_relative_to(layout.workspace)
    root = layout.workspace if is_inside else layout.common
    place = os.fsencode((layout.objects / "pack").relative_to(root))
    names = sorted(
        (path.name for path in source.iterdir() if path.suffix in {".pack", ".rev", ".idx"}), key=_order
    )
    with Tree(root) as tree:
        tree.directory(place, create=True)
        for name in names:
            if tree.lstat(place + b"/" + os.fsencode(name)) is None:
                _adopt(source / name, tree.directory(place), name)


def _adopt(source: Path, target: int, name: str) -> None:
    partial = f"tmp_ringfence_{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        source.open("rb") as reading,
        os.fdopen(os.open(partial, flags, 0o444, dir_fd=target), "wb") as writing,
    ):
        shutil.copyfileobj(reading, writing, 1024**2)
        os.fchmod(writing.fileno(), 0o444)
    os.rename(partial, name, src_dir_fd=target, dst_dir_fd=target)


def _order(name: str) -> tuple[bool, str]:
    return name.endswith(".idx"), name
