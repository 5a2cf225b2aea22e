"""The loop's branch, brought into the user's repository: objects and refs, never a file, HEAD, index or stash.

The objects pass git's checks in a directory of ours first; only then are they put among the user's, and refs are made
by compare-and-set.
"""

import os
from pathlib import Path

from ringfence.frozen import frozen
from ringfence.loop.repository.paths import is_attributes, is_modules
from ringfence.loop.repository.refusal import DeliveryRefused
from ringfence.loop.repository.source import Opened, Source, opened
from ringfence.sandbox.workspace.git.command import Git, GitBoundReached
from ringfence.sandbox.workspace.git.commits import adopt_packs, unsafe_places
from ringfence.sandbox.workspace.git.layout import read_small
from ringfence.sandbox.workspace.git.packs import PackRefused, take_pack
from ringfence.sandbox.workspace.tree import Tree

_PACK_BYTES = 2 * 1024**3
_PACK_S = 900.0
_LISTING_BYTES = 512 * 1024**2
_FORGIVEN = "forgiven"
_MAX_TREES = 1000
ZERO = "0"
_IDENTITY = {
    "GIT_COMMITTER_NAME": "ringfence",
    "GIT_COMMITTER_EMAIL": "ringfence@localhost",
    "GIT_AUTHOR_NAME": "ringfence",
    "GIT_AUTHOR_EMAIL": "ringfence@localhost",
}


@frozen
class Goods:
    """The loop's commits and the branch to create."""

    git: Git
    """The loop's repository."""
    loop: str
    base: str
    branch: str
    """Full name in the user's repository."""
    tip: str


async def deliver_branch(goods: Goods, source: Source) -> None:
    """Put the loop's commits among the user's objects and make a branch of them; a second call has no further effect.

    Args:
        goods: Of the loop.
        source: The user's repository, found anew.

    Raises:
        DeliveryRefused: A branch of that name with other commits is there, the repository cannot be written to, or
            git's checks refuse the work.
        InfrastructureFault: Git failed; no branch was made.
    """
    async with opened(source) as seen:
        before = seen.refs.direct.get(goods.branch)
        if before == goods.tip:
            return
        await _check_branch(goods, source, seen)
        why = await source.actor.call(lambda: _unsafe(source, goods.branch))
        if why is not None:
            raise DeliveryRefused(f"the loop's work is not brought to {str(source.root)!r}: {why}")
        await _check_and_store(goods, source, seen)
    await set_ref(source, goods.branch, goods.tip, before, loop=goods.loop)


def _unsafe(source: Source, branch: str) -> str | None:
    parts = branch.split("/")
    return unsafe_places(source.layout, ["/".join(parts[:depth]) for depth in range(1, len(parts))])


async def _check_branch(goods: Goods, source: Source, seen: Opened) -> None:
    """See that the branch can be made or moved, and is nobody else's."""
    branch, there = goods.branch, seen.refs.direct
    if branch in seen.refs.symbolic:
        raise DeliveryRefused(
            f"{branch!r} is a name for another ref in your repository; remove it and deliver again"
        )
    _check_free(branch, seen)
    if branch in there and not await _is_of_loop(goods, there[branch]):
        raise DeliveryRefused(
            f"a branch {short(branch)!r} with other commits is in your repository; rename it"
            f" (`git branch -m {short(branch)} NAME`) and deliver again"
        )
    holder = await source.actor.call(lambda: checked_out_in(source, branch))
    if holder is not None:
        raise DeliveryRefused(
            f"the branch {short(branch)!r} is checked out in {str(holder)!r} and would change under it; check out"
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
            f"your branch {short(in_the_way)!r} leaves no room for one called {short(branch)!r}; rename it"
            f" (`git branch -m {short(in_the_way)} NAME`) and deliver again"
        )


async def _is_of_loop(goods: Goods, commit: str) -> bool:
    """Whether a commit is one that this loop made earlier, or the one it began at: the branch then only grows."""
    if commit == goods.base:  # nothing but stories that were done before had passed
        return True
    told = await goods.git.run("rev-list", goods.tip, f"^{goods.base}")
    return commit in told.stdout.decode().split()


def short(ref: str) -> str:
    """A branch as people name it."""
    return ref.removeprefix("refs/heads/")


def checked_out_in(source: Source, branch: str) -> Path | None:
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


async def _check_and_store(goods: Goods, source: Source, seen: Opened) -> None:
    """Take objects over into our copy, every one checked; then copy the packs among the user's."""
    known = await _known(goods, seen)
    wanted = f"{goods.tip}\n" + "".join(f"^{commit}\n" for commit in known)
    packed = await goods.git.run(
        *("pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "-q"),
        stdin=wanted.encode(),
        timeout_s=_PACK_S,
        output_limit_bytes=_PACK_BYTES,
    )
    git = seen.git
    await _forgive(goods, source, git.directory / _FORGIVEN)
    strict = f"--strict=skiplist={_FORGIVEN}"  # git is run where it is: a path may hold blanks, which end it for git
    try:
        await take_pack(git, packed.stdout, strict=strict)
    except (PackRefused, GitBoundReached) as exc:
        raise DeliveryRefused(
            f"the loop's work is not brought to your repository: {exc}; `ringfence loop diff` prints it"
        ) from exc
    connected = ("rev-list", "--objects", "--quiet", "--stdin", "--not", *known, "--all")
    await git.run(*connected, stdin=f"{goods.tip}\n".encode(), timeout_s=_PACK_S)
    try:
        await source.actor.call(lambda: adopt_packs(git, source.layout))
    except OSError as exc:
        raise DeliveryRefused(
            f"the repository {str(source.layout.common)!r} cannot take commits: {exc.strerror}; `ringfence loop diff` "
            "prints them"
        ) from exc


async def _forgive(goods: Goods, source: Source, file: Path) -> None:
    """List what the base has of files that git reads: nobody in the loop wrote those, whatever git says of them."""
    told = await goods.git.run("ls-tree", "-r", "-z", goods.base, output_limit_bytes=_LISTING_BYTES)
    names = list[str]()
    for line in told.stdout.split(b"\0"):
        head, _, path = line.partition(b"\t")
        name = path.rpartition(b"/")[2].decode("utf-8", "replace")
        if is_modules(name) or is_attributes(name):
            names.append(head.split(b" ")[2].decode("ascii"))
    text = "".join(f"{name}\n" for name in names)
    await source.actor.call(lambda: file.write_text(text))  # as who could put a link in its place


async def _known(goods: Goods, seen: Opened) -> list[str]:
    """The base, if the user still has all of it: history may have been rewritten meanwhile, and thrown away."""
    told = await seen.git.run(
        "rev-list",
        "--objects",
        "--quiet",
        goods.base,
        "--not",
        "--all",
        accept=(0, 1, 128),
        timeout_s=_PACK_S,
    )
    return [goods.base] if told.ok else []


async def set_ref(source: Source, name: str, commit: str, before: str | None, *, loop: str) -> None:
    """Move or make a ref in the user's repository, if it is where it is thought to be.

    Raises:
        DeliveryRefused: It has moved meanwhile, or is locked.
    """
    users = Git(source.layout.directory, actor=source.actor, environment=_IDENTITY)
    old = before or ZERO * (64 if source.object_format == "sha256" else 40)
    told = await users.run(
        "update-ref",
        "--no-deref",
        "-m",
        f"ringfence loop {loop[:100]}",
        name,
        commit,
        old,
        accept=(0, 1, 128),
    )
    if not told.ok:
        said = told.stderr.decode("utf-8", "replace").strip()[:300]
        raise DeliveryRefused(f"{name!r} could not be set in {str(source.root)!r}: {said!r}; deliver again")
