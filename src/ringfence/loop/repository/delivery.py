"""Delivers a loop's work to the user's repository as a branch, and merges it if the user requests that.

Git checks the objects in a temporary git directory. Only then are they added to the user's repository, and the branch is
created by compare-and-set. The user's files, HEAD, index and stash do not change.

A merge is `git merge --ff-only` on the user's files and index, but with a temporary git directory: hooks, filters, the
file system monitor and settings of the repository, or of files that its configuration includes, have no effect.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from ringfence.frozen import frozen
from ringfence.loop.repository.change import is_attributes, is_modules
from ringfence.loop.repository.commit import identity, list_files
from ringfence.loop.repository.inspection import file_options
from ringfence.loop.repository.refusal import DeliveryRefused
from ringfence.loop.repository.repository_directory import RepositoryOrigin, ref_part
from ringfence.loop.repository.source import Source, SourceView, open_source
from ringfence.sandbox.workspace.git.command import LARGE, Git, GitBoundReached
from ringfence.sandbox.workspace.git.commits import adopt_packs, unsafe_places
from ringfence.sandbox.workspace.git.layout import is_true, read_small
from ringfence.sandbox.workspace.git.packs import PackRefused, take_pack
from ringfence.sandbox.workspace.snapshot.objects import Blob
from ringfence.sandbox.workspace.tree import Tree

_PACK_BYTES = 2 * 1024**3
_PACK_S = 900.0
_MERGE_S = 600.0
_MESSAGE_CHARS = 600
_SKIPLIST = "skiplist"
_MAX_TREES = 1000
_IN_PROGRESS = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"),
    *("rebase-merge", "rebase-apply", "sequencer"),
)
_CONVERTING = (b"filter", b"eol", b"ident", b"working-tree-encoding", b"crlf")
"""Attributes with which git converts a file on checkout."""


@frozen
class Delivered:
    """A branch of the user's repository that contains the loop's work."""

    branch: str
    """Without `refs/heads/`."""
    tip: str


@frozen
class BranchToDeliver:
    """The loop's branch, and its name in the user's repository."""

    git: Git
    """Git on the loop's repository, under its lock."""
    origin: RepositoryOrigin
    tip: str
    base_files: Sequence[Blob] = ()
    """Every file of the commit that the loop started from."""

    @property
    def ref(self) -> str:
        """The branch's full name in the user's repository."""
        return f"refs/heads/ringfence/loop-{ref_part(self.origin.loop)}"

    @property
    def reason(self) -> str:
        """What the log of a ref that is moved for it holds."""
        return f"ringfence loop {self.origin.loop[:100]}"


async def deliver(to_deliver: BranchToDeliver, source: Source) -> Delivered:
    """Add a loop's commits to the user's objects, and create or move the branch; a second call has no effect.

    Args:
        to_deliver: The loop's branch.
        source: The user's repository in its current state.

    Raises:
        DeliveryRefused: A branch of that name has other commits, the repository cannot be written, or git's checks
            reject the objects.
        InfrastructureFault: Git failed; no branch was created.
    """
    async with open_source(source) as view:
        before = view.refs.direct.get(to_deliver.ref)
        if before != to_deliver.tip:
            await _check_branch(to_deliver, source, view)
            why = await source.actor.call(lambda: _unsafe(source, to_deliver.ref))
            if why is not None:
                raise DeliveryRefused(f"the loop's work is not delivered to {str(source.root)!r}: {why}")
            await _check_and_store(to_deliver, source, view)
            await set_ref(source, to_deliver.ref, to_deliver.tip, before, reason=to_deliver.reason)
    return Delivered(_short(to_deliver.ref), to_deliver.tip)


def _unsafe(source: Source, branch: str) -> str | None:
    parts = branch.split("/")
    return unsafe_places(source.layout, ["/".join(parts[:depth]) for depth in range(1, len(parts))])


async def _check_branch(to_deliver: BranchToDeliver, source: Source, view: SourceView) -> None:
    """Check that the branch can be created or moved, and that it is this loop's."""
    branch, refs = to_deliver.ref, view.refs.direct
    if branch in view.refs.symbolic:
        raise DeliveryRefused(f"{branch!r} is a name for another ref in your repository; remove it")
    _check_free(branch, view)
    if branch in refs and not await _is_of_loop(to_deliver, refs[branch]):
        raise DeliveryRefused(
            f"a branch {_short(branch)!r} with other commits is in your repository; rename it"
            f" (`git branch -m {_short(branch)} NAME`)"
        )
    holder = await source.actor.call(lambda: _checked_out_in(source, branch))
    if holder is not None:
        raise DeliveryRefused(
            f"the branch {_short(branch)!r} is checked out in {str(holder)!r} and would change under it; check out"
            " another one"
        )


def _check_free(branch: str, view: SourceView) -> None:
    """Check that no other ref prevents the branch: a ref is a file, and cannot be a directory as well."""
    every = {*view.refs.direct, *view.refs.symbolic} - {branch}
    parts = branch.split("/")
    above = {"/".join(parts[:depth]) for depth in range(3, len(parts))}
    in_the_way = next(
        (name for name in sorted(every) if name in above or name.startswith(f"{branch}/")), None
    )
    if in_the_way is not None:
        raise DeliveryRefused(
            f"your branch {_short(in_the_way)!r} leaves no room for one called {_short(branch)!r}; rename it"
            f" (`git branch -m {_short(in_the_way)} NAME`)"
        )


async def _is_of_loop(to_deliver: BranchToDeliver, commit: str) -> bool:
    """Whether a commit is the loop's base or one of its earlier commits, so that the branch is only moved forward."""
    if commit == to_deliver.origin.base:  # earlier versions delivered it if no story was merged
        return True
    listed = await to_deliver.git.run("rev-list", to_deliver.tip, f"^{to_deliver.origin.base}")
    return commit in listed.stdout.decode().split()


def _short(ref: str) -> str:
    """Return a branch's short name."""
    return ref.removeprefix("refs/heads/")


def _checked_out_in(source: Source, branch: str) -> Path | None:
    """Return the work tree, or its git directory, in which a branch is checked out; None if it is in none."""
    layout = source.layout
    heads = [] if source.is_bare else [layout.common]
    with Tree(layout.common) as tree:
        status = tree.lstat(b"worktrees")
        names = tree.children(b"worktrees")[:_MAX_TREES] if status is not None else []
    heads += [layout.common / "worktrees" / os.fsdecode(name) for name in names]
    for directory in heads:
        text = os.fsdecode(read_small(directory, b"HEAD") or b"").strip()
        if text.startswith("ref:") and text[4:].strip() == branch:
            git_file = os.fsdecode(read_small(directory, b"gitdir") or b"").strip()
            return Path(git_file).parent if git_file else directory
    return None


async def _check_and_store(to_deliver: BranchToDeliver, source: Source, view: SourceView) -> None:
    """Check the new objects in the temporary git directory, then copy their packs to the user's repository."""
    known = await _known_commits(to_deliver, view)
    revisions = f"{to_deliver.tip}\n" + "".join(f"^{commit}\n" for commit in known)
    packed = await to_deliver.git.run(
        *("pack-objects", "--revs", "--stdout", "--thin", "--delta-base-offset", "-q"),
        stdin=revisions.encode(),
        timeout_s=_PACK_S,
        output_limit_bytes=_PACK_BYTES,
    )
    git = view.git
    await _write_skiplist(to_deliver.base_files, source, git.directory / _SKIPLIST)
    strict = (
        f"--strict=skiplist={_SKIPLIST}"  # relative to git's working directory: git splits a path at blanks
    )
    try:
        await take_pack(git, packed.stdout, strict=strict)
    except (PackRefused, GitBoundReached) as exc:
        raise DeliveryRefused(
            f"the loop's work is not delivered to your repository: {exc}; `ringfence loop diff` prints it"
        ) from exc
    connected = ("rev-list", "--objects", "--quiet", "--stdin", "--not", *known, "--all")
    await git.run(*connected, stdin=f"{to_deliver.tip}\n".encode(), timeout_s=_PACK_S)
    try:
        await source.actor.call(lambda: adopt_packs(git, source.layout))
    except OSError as exc:
        raise DeliveryRefused(
            f"the repository {str(source.layout.common)!r} cannot take commits: {exc.strerror}; `ringfence loop diff` "
            "prints them"
        ) from exc


async def _write_skiplist(base_files: Sequence[Blob], source: Source, file: Path) -> None:
    """Exempt the base's own files that git itself reads (`.gitattributes`, `.gitmodules`) from git's checks.

    The loop's agents did not write them.
    """
    text = "".join(
        f"{blob.id}\n" for blob in base_files if is_modules(_name(blob)) or is_attributes(_name(blob))
    )
    await source.actor.call(
        lambda: file.write_text(text)
    )  # as the user, who could replace the file by a link


async def _known_commits(to_deliver: BranchToDeliver, view: SourceView) -> list[str]:
    """Return the base, if the user's repository still contains all of it: its history may have been rewritten."""
    base = to_deliver.origin.base
    if base in view.refs.direct.values():  # everything that a ref leads to exists
        return [base]
    command = ("rev-list", "--objects", "--quiet", base, "--not", "--all")
    listed = await view.git.run(*command, accept=(0, 1, 128), timeout_s=_PACK_S)
    return [base] if listed.ok else []


async def set_ref(source: Source, name: str, commit: str, before: str | None, *, reason: str) -> None:
    """Move or create a ref in the user's repository by compare-and-set.

    Args:
        source: The repository.
        name: The ref, in full, or `HEAD` if it is on no branch.
        commit: What it is set to.
        before: What it is at; None: it does not exist.
        reason: What its log holds.

    Raises:
        DeliveryRefused: The ref was moved meanwhile, or is locked.
    """
    users = Git(source.layout.directory, actor=source.actor, environment=identity())
    old = before or "0" * (64 if source.object_format == "sha256" else 40)
    command = ("update-ref", "--no-deref", "-m", reason, name, commit, old)
    updated = await users.run(*command, accept=(0, 1, 128))
    if not updated.ok:
        message = updated.stderr.decode("utf-8", "replace").strip()[:300]
        raise DeliveryRefused(f"{name!r} could not be set in {str(source.root)!r}: {message!r}")


async def merge_delivered(to_deliver: BranchToDeliver, source: Source, done: Delivered) -> Delivered:
    """Fast-forward the branch on which the loop was started to the delivered work.

    Raises:
        DeliveryRefused: Git refuses the merge, or it could lose something; the message says where the work is and what
            to type.
        InfrastructureFault: Git failed.
    """
    where, branch = f"the work is in branch {done.branch!r}", to_deliver.origin.branch
    if branch is None:
        raise DeliveryRefused(
            f"{where}; the loop began on no branch; check one out and type `git merge {done.branch}`"
        )
    try:
        await _fast_forward(to_deliver, source, branch, done)
    except DeliveryRefused as exc:
        raise DeliveryRefused(f"{where}; {exc}") from exc
    return Delivered(_short(branch), done.tip)


async def _fast_forward(to_deliver: BranchToDeliver, source: Source, branch: str, done: Delivered) -> None:
    async with open_source(source) as view:
        current = view.refs.direct.get(branch)
        if current is None:
            raise DeliveryRefused(
                f"there is no branch {_short(branch)!r} to merge into; merge {done.branch!r} by hand"
            )
        counts = await view.git.run("rev-list", "--left-right", "--count", f"{current}...{done.tip}")
        only_users, only_loops = map(int, counts.stdout.split())
        if not only_loops:
            return  # merged already
        if only_users:
            raise DeliveryRefused(
                f"{_short(branch)!r} has commits that the loop's work does not contain, so that it cannot be "
                f"fast-forwarded: `git merge {done.branch}` merges both"
            )
        holder = await source.actor.call(lambda: _checked_out_in(source, branch))
        with anyio.CancelScope(shield=True):  # files, index and branch change together
            if holder is not None:
                await _merge_files(source, view, branch, done, holder, to_deliver.git.inherited)
            await set_ref(source, branch, done.tip, current, reason=to_deliver.reason)


async def _merge_files(
    source: Source, view: SourceView, branch: str, done: Delivered, holder: Path, locks: tuple[int, ...]
) -> None:
    """Fast-forward the user's files and index, but not the branch itself.

    Raises:
        DeliveryRefused: The branch is checked out elsewhere, this git would not write the files as the user's git does,
            or git refuses the merge because of a changed or untracked file.
    """
    advice = f"`git merge --ff-only {done.branch}`"
    if source.is_bare or view.branch != branch:
        raise DeliveryRefused(f"{_short(branch)!r} is checked out in {str(holder)!r}: there, type {advice}")
    why = await source.actor.call(lambda: why_not_mergeable(source)) or await why_converted(
        view.git, done.tip
    )
    if why is not None:
        raise DeliveryRefused(f"the files of {_short(branch)!r} are not updated, for {why}; type {advice}")
    git = replace(
        view.git,
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
        message = " ".join(merged.stderr.decode("utf-8", "replace").split())[:_MESSAGE_CHARS]
        raise DeliveryRefused(
            f"git did not merge it into {str(source.root)!r}: {message!r}; fix that, then type {advice}"
        )


def why_not_mergeable(source: Source) -> str | None:
    """Return why the user's work tree is in no state for a merge by this git; None if it is."""
    for name in _IN_PROGRESS:
        if os.path.lexists(source.layout.directory / name):
            return f"a merge, a rebase or a similar operation is in progress there ({name})"
    if source.is_sparse:
        return "the checkout is sparse"
    if is_true(source.config.get("core.autocrlf", "")):
        return "core.autocrlf makes your git convert files on checkout"
    attributes = read_small(source.layout.common, b"info/attributes") or b""
    return _converting(attributes, "info/attributes")


async def why_converted(git: Git, tip: str) -> str | None:
    """Return why git converts files of a commit on checkout, which only the user's own git does correctly."""
    for blob in await list_files(git, tip):
        if is_attributes(_name(blob)):
            why = _converting((await git.run("cat-file", "blob", blob.id)).stdout, os.fsdecode(blob.path))
            if why is not None:
                return why
    return None


def _name(file: Blob) -> str:
    return file.path.rpartition(b"/")[2].decode("utf-8", "replace")


def _converting(attributes: bytes, where: str) -> str | None:
    lines = (line.strip() for line in attributes.splitlines())
    words = [word for line in lines if line and not line.startswith(b"#") for word in line.split()[1:]]
    for word in words:
        name, _, value = word.lstrip(b"!").partition(b"=")
        if name in _CONVERTING and value != b"lf":
            return f"{where!r} makes your git convert files on checkout ({os.fsdecode(word)!r})"
    return None
