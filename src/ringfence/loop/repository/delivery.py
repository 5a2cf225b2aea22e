"""The loop's work, delivered to the user's repository as a branch, and merged where the user requests it.

The objects pass git's checks in a directory of ours first; only then are they put among the user's, and the branch is
created by compare-and-set. No file, HEAD, index or stash is touched by that.

A merge is `git merge --ff-only`, on the user's files and index but in a git directory of ours: no hook, filter, file
system monitor or setting of the repository, or of a file that its configuration includes, has an effect.
"""

import os
from dataclasses import replace
from pathlib import Path

import anyio

from ringfence.frozen import frozen
from ringfence.loop.repository.change import is_attributes, is_modules
from ringfence.loop.repository.commit import identity
from ringfence.loop.repository.look import file_options
from ringfence.loop.repository.place import Record, ref_part
from ringfence.loop.repository.refusal import DeliveryRefused
from ringfence.loop.repository.source import Opened, Source, opened
from ringfence.sandbox.workspace.git.command import LARGE, Git, GitBoundReached
from ringfence.sandbox.workspace.git.commits import adopt_packs, unsafe_places
from ringfence.sandbox.workspace.git.layout import read_small
from ringfence.sandbox.workspace.git.packs import PackRefused, take_pack
from ringfence.sandbox.workspace.tree import Tree

_PACK_BYTES = 2 * 1024**3
_PACK_S = 900.0
_MERGE_S = 600.0
_LISTING_BYTES = 512 * 1024**2
_SAID_BYTES = 600
_FORGIVEN = "forgiven"
_MAX_TREES = 1000
_BUSY = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"),
    *("rebase-merge", "rebase-apply", "sequencer"),
)
_CONVERTING = (b"filter", b"eol", b"ident", b"working-tree-encoding", b"crlf")
"""Attributes by which git changes a file as it checks it out."""


@frozen
class Delivered:
    """A branch of the user's repository that holds the loop's work."""

    branch: str
    """Without `refs/heads/`."""
    tip: str


@frozen
class Work:
    """The loop's commits and the branch to create."""

    git: Git
    """The loop's repository, under its lock."""
    record: Record
    tip: str

    @property
    def branch(self) -> str:
        """Full name in the user's repository."""
        return f"refs/heads/ringfence/loop-{ref_part(self.record.loop)}"


async def deliver(work: Work, source: Source) -> Delivered:
    """Put a loop's commits among the user's objects and make a branch of them; a second call has no further effect.

    Args:
        work: Of the loop.
        source: The user's repository, found anew.

    Raises:
        DeliveryRefused: A branch of that name with other commits is there, the repository cannot be written to, or
            git's checks refuse the work.
        InfrastructureFault: Git failed; no branch was made.
    """
    async with opened(source) as seen:
        before = seen.refs.direct.get(work.branch)
        if before != work.tip:
            await _check_branch(work, source, seen)
            why = await source.actor.call(lambda: _unsafe(source, work.branch))
            if why is not None:
                raise DeliveryRefused(f"the loop's work is not brought to {str(source.root)!r}: {why}")
            await _check_and_store(work, source, seen)
            await _set_ref(source, work.branch, work.tip, before, loop=work.record.loop)
    return Delivered(_short(work.branch), work.tip)


def _unsafe(source: Source, branch: str) -> str | None:
    parts = branch.split("/")
    return unsafe_places(source.layout, ["/".join(parts[:depth]) for depth in range(1, len(parts))])


async def _check_branch(work: Work, source: Source, seen: Opened) -> None:
    """See that the branch can be made or moved, and is nobody else's."""
    branch, there = work.branch, seen.refs.direct
    if branch in seen.refs.symbolic:
        raise DeliveryRefused(
            f"{branch!r} is a name for another ref in your repository; remove it and deliver again"
        )
    _check_free(branch, seen)
    if branch in there and not await _is_of_loop(work, there[branch]):
        raise DeliveryRefused(
            f"a branch {_short(branch)!r} with other commits is in your repository; rename it"
            f" (`git branch -m {_short(branch)} NAME`) and deliver again"
        )
    holder = await source.actor.call(lambda: _checked_out_in(source, branch))
    if holder is not None:
        raise DeliveryRefused(
            f"the branch {_short(branch)!r} is checked out in {str(holder)!r} and would change under it; check out"
            " another one and deliver again"
        )


def _check_free(branch: str, seen: Opened) -> None:
    """No ref may be in the way: one of git's is a file, and cannot be a directory."""
    every = {*seen.refs.direct, *seen.refs.symbolic} - {branch}
    parts = branch.split("/")
    above = {"/".join(parts[:depth]) for depth in range(3, len(parts))}
    in_the_way = next(
        (name for name in sorted(every) if name in above or name.startswith(f"{branch}/")), None
    )
    if in_the_way is not None:
        raise DeliveryRefused(
            f"your branch {_short(in_the_way)!r} leaves no room for one called {_short(branch)!r}; rename it"
            f" (`git branch -m {_short(in_the_way)} NAME`) and deliver again"
        )


async def _is_of_loop(work: Work, commit: str) -> bool:
    """Whether a commit is one that this loop made earlier, or the one it began at: the branch then only grows."""
    if commit == work.record.base:  # nothing but stories that were done before had passed
        return True
    told = await work.git.run("rev-list", work.tip, f"^{work.record.base}")
    return commit in told.stdout.decode().split()


def _short(ref: str) -> str:
    """A branch as people name it."""
    return ref.removeprefix("refs/heads/")


def _checked_out_in(source: Source, branch: str) -> Path | None:
    """The work tree, or its git directory, in which a branch is checked out."""
    layout = source.layout
    heads = [] if source.is_bare else [layout.common]
    with Tree(layout.common) as tree:
        status = tree.lstat(b"worktrees")
        names = tree.children(b"worktrees")[:_MAX_TREES] if status is not None else []
    heads += [layout.common / "worktrees" / os.fsdecode(name) for name in names]
    for directory in heads:
        text = os.fsdecode(read_small(directory, b"HEAD") or b"").strip()
        if text.startswith("ref:") and text[4:].strip() == branch:
            named = os.fsdecode(read_small(directory, b"gitdir") or b"").strip()
            return Path(named).parent if named else directory
    return None


async def _check_and_store(work: Work, source: Source, seen: Opened) -> None:
    """Take objects over into our copy, every one checked; then copy the packs among the user's."""
    known = await _known(work, seen)
    wanted = f"{work.tip}\n" + "".join(f"^{commit}\n" for commit in known)
    packed = await work.git.run(
        *("pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "-q"),
        stdin=wanted.encode(),
        timeout_s=_PACK_S,
        output_limit_bytes=_PACK_BYTES,
    )
    git = seen.git
    await _forgive(work, source, git.directory / _FORGIVEN)
    strict = f"--strict=skiplist={_FORGIVEN}"  # git is run where it is: a path may hold blanks, which end it for git
    try:
        await take_pack(git, packed.stdout, strict=strict)
    except (PackRefused, GitBoundReached) as exc:
        raise DeliveryRefused(
            f"the loop's work is not brought to your repository: {exc}; `ringfence loop diff` prints it"
        ) from exc
    connected = ("rev-list", "--objects", "--quiet", "--stdin", "--not", *known, "--all")
    await git.run(*connected, stdin=f"{work.tip}\n".encode(), timeout_s=_PACK_S)
    try:
        await source.actor.call(lambda: adopt_packs(git, source.layout))
    except OSError as exc:
        raise DeliveryRefused(
            f"the repository {str(source.layout.common)!r} cannot take commits: {exc.strerror}; `ringfence loop diff` "
            "prints them"
        ) from exc


async def _forgive(work: Work, source: Source, file: Path) -> None:
    """List what the base has of files that git reads: nobody in the loop wrote those, whatever git says of them."""
    names = (await _read_by_git(work.git, work.record.base)).values()
    text = "".join(f"{name}\n" for name in names)
    await source.actor.call(lambda: file.write_text(text))  # as who could put a link in its place


async def _known(work: Work, seen: Opened) -> list[str]:
    """The base, if the user still has all of it: history may have been rewritten meanwhile, and thrown away."""
    base = work.record.base
    if base in seen.refs.direct.values():  # a ref has all that it leads to
        return [base]
    command = ("rev-list", "--objects", "--quiet", base, "--not", "--all")
    told = await seen.git.run(*command, accept=(0, 1, 128), timeout_s=_PACK_S)
    return [base] if told.ok else []


async def _set_ref(source: Source, name: str, commit: str, before: str | None, *, loop: str) -> None:
    """Move or make a ref in the user's repository, if it is where it is thought to be.

    Raises:
        DeliveryRefused: It has moved meanwhile, or is locked.
    """
    users = Git(source.layout.directory, actor=source.actor, environment=identity())
    old = before or "0" * (64 if source.object_format == "sha256" else 40)
    command = ("update-ref", "--no-deref", "-m", f"ringfence loop {loop[:100]}", name, commit, old)
    told = await users.run(*command, accept=(0, 1, 128))
    if not told.ok:
        said = told.stderr.decode("utf-8", "replace").strip()[:300]
        raise DeliveryRefused(f"{name!r} could not be set in {str(source.root)!r}: {said!r}; deliver again")


async def merge_delivered(work: Work, source: Source, done: Delivered) -> Delivered:
    """Fast-forward the branch that the loop began on to delivered work.

    Raises:
        DeliveryRefused: Git refuses, or something could be lost; the text says where the work is and what to type.
        InfrastructureFault: Git failed.
    """
    where, branch = f"the work is in branch {done.branch!r}", work.record.branch
    if branch is None:
        raise DeliveryRefused(
            f"{where}; the loop began on no branch; check one out and type `git merge {done.branch}`"
        )
    try:
        await _fast_forward(work, source, branch, done)
    except DeliveryRefused as exc:
        raise DeliveryRefused(f"{where}; {exc}") from exc
    return Delivered(_short(branch), done.tip)


async def _fast_forward(work: Work, source: Source, branch: str, done: Delivered) -> None:
    async with opened(source) as seen:
        there = seen.refs.direct.get(branch)
        if there is None:
            raise DeliveryRefused(
                f"there is no branch {_short(branch)!r} to merge into; merge {done.branch!r} by hand"
            )
        told = await seen.git.run("rev-list", "--left-right", "--count", f"{there}...{done.tip}")
        only_users, only_loops = map(int, told.stdout.split())
        if not only_loops:
            return  # merged already
        if only_users:
            raise DeliveryRefused(
                f"{_short(branch)!r} has commits that the loop's work has not, and it is only ever moved forward: "
                f"`git merge {done.branch}` joins them"
            )
        holder = await source.actor.call(lambda: _checked_out_in(source, branch))
        with anyio.CancelScope(shield=True):  # files, index and branch go together
            if holder is not None:
                await _merge_files(source, seen, branch, done, holder, work.git.inherited)
            await _set_ref(source, branch, done.tip, there, loop=work.record.loop)


async def _merge_files(
    source: Source, seen: Opened, branch: str, done: Delivered, holder: Path, locks: tuple[int, ...]
) -> None:
    """Fast-forward the user's files and index; the branch itself is not moved yet.

    Raises:
        DeliveryRefused: The branch is checked out elsewhere, git would not write the files as the user's own does, or
            git refuses, as it does where a file is changed or in the way.
    """
    advice = f"`git merge --ff-only {done.branch}`"
    if source.is_bare or seen.branch != branch:
        raise DeliveryRefused(f"{_short(branch)!r} is checked out in {str(holder)!r}: there, type {advice}")
    why = await source.actor.call(lambda: _why_not_here(source)) or await _why_converted(seen.git, done.tip)
    if why is not None:
        raise DeliveryRefused(f"the files of {_short(branch)!r} are not updated, for {why}; type {advice}")
    git = replace(
        seen.git,
        work_tree=source.root,
        options=("core.bare=false", *file_options(source)),
        environment={**identity(), "GIT_INDEX_FILE": str(source.layout.directory / "index")},
        inherited=locks,
        bounds=LARGE,
    )
    merged = await git.run(
        *("merge", "--ff-only", "--no-overwrite-ignore", "--quiet", done.tip),
        timeout_s=_MERGE_S,
        accept=(0, 1, 128),
    )
    if not merged.ok:
        said = " ".join(merged.stderr.decode("utf-8", "replace").split())[:_SAID_BYTES]
        raise DeliveryRefused(
            f"git did not merge it into {str(source.root)!r}: {said!r}; put that right, then type {advice}"
        )


def _why_not_here(source: Source) -> str | None:
    for name in _BUSY:
        if os.path.lexists(source.layout.directory / name):
            return f"a merge, rebase or the like goes on there ({name})"
    if source.config.get("core.sparsecheckout", "").lower() in {"true", "yes", "on", "1"}:
        return "the checkout is sparse"
    if source.config.get("core.autocrlf", "false").lower() in {"true", "yes", "on", "1"}:
        return "core.autocrlf has your git change files as it checks them out"
    attributes = read_small(source.layout.common, b"info/attributes") or b""
    return _converting(attributes, "info/attributes")


async def _why_converted(git: Git, tip: str) -> str | None:
    """Why git changes files of a commit as it checks them out, which only the user's own git does rightly."""
    for path, name in (await _read_by_git(git, tip)).items():
        if is_attributes(path.rpartition("/")[2]):
            why = _converting((await git.run("cat-file", "blob", name)).stdout, path)
            if why is not None:
                return why
    return None


async def _read_by_git(git: Git, commit: str) -> dict[str, str]:
    """The files of a commit that git itself reads, whatever their spelling, each with the id of its contents."""
    told = await git.run("ls-tree", "-r", "-z", commit, output_limit_bytes=_LISTING_BYTES)
    found = dict[str, str]()
    for line in told.stdout.split(b"\0"):
        head, _, path = line.partition(b"\t")
        name = path.rpartition(b"/")[2].decode("utf-8", "replace")
        if is_modules(name) or is_attributes(name):
            found[os.fsdecode(path)] = head.split(b" ")[2].decode("ascii")
    return found


def _converting(attributes: bytes, where: str) -> str | None:
    lines = (line.strip() for line in attributes.splitlines())
    words = [word for line in lines if line and not line.startswith(b"#") for word in line.split()[1:]]
    for word in words:
        name, _, value = word.lstrip(b"!").partition(b"=")
        if name in _CONVERTING and value != b"lf":
            return f"{where!r} has your git change files as it checks them out ({os.fsdecode(word)!r})"
    return None
