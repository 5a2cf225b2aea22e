"""Files of the user's work tree, gone over to another commit: each is looked at, then replaced by a rename."""

import hashlib
import stat

from ringfence.errors import InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.loop.repository.source import Source
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.tree import Tree

_MOST_BYTES = 1024**3
_LISTING_BYTES = 512 * 1024**2
_AT_ONCE = 100
"""Files that are read together."""
State = tuple[int, str] | None
"""Mode and id of a file; None: there is none."""


@frozen
class Step:
    """What differs at one path between the branch and the loop's work."""

    path: bytes
    before: State
    after: State


async def steps_between(git: Git, old: str, tip: str) -> list[Step]:
    """What differs between two commits, path by path."""
    command = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, tip)
    told = await git.run(*command, timeout_s=600.0, output_limit_bytes=_LISTING_BYTES)
    fields = told.stdout.split(b"\0")
    steps = []
    for head, path in zip(fields[::2], fields[1::2], strict=False):
        first, second, one, other, _ = head[1:].split(b" ")
        states = [
            (int(mode, 8), name.decode()) if mode != b"000000" else None
            for mode, name in ((first, one), (second, other))
        ]
        steps.append(Step(path, states[0], states[1]))
    return steps


def states_of(source: Source, steps: list[Step]) -> dict[bytes, State | tuple[int, str]]:
    """What is at each path now; something that is neither is of mode 0."""
    gone = {step.path for step in steps if step.after is None}
    with Tree(source.root) as tree:
        return {step.path: _state(tree, source, step, gone) for step in steps}


def _state(tree: Tree, source: Source, step: Step, gone: set[bytes]) -> State:
    strange = (0, "")
    parts = step.path.split(b"/")
    for above in (b"/".join(parts[:depth]) for depth in range(1, len(parts))):
        status = tree.lstat(above)
        if status is None:
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None if above in gone else strange
    status = tree.lstat(step.path)
    if status is None:
        return None
    if stat.S_ISDIR(status.st_mode):
        return None if _holds_only(tree, step.path, gone) else strange
    try:
        data, status = tree.read(step.path, _MOST_BYTES)
    except OSError:
        return strange
    digest = hashlib.new(source.object_format, b"blob %d\0" % len(data), usedforsecurity=False)
    digest.update(data)
    return _mode(status.st_mode, source, step), digest.hexdigest()


def _mode(mode: int, source: Source, step: Step) -> int:
    if stat.S_ISLNK(mode):
        return 0o120000
    if source.config.get("core.filemode", "true").lower() in {"false", "no", "off", "0"}:
        # The file system has no such bit: it is what it should be.
        return next((state[0] for state in (step.before, step.after) if state), 0o100644)
    return 0o100755 if mode & 0o100 else 0o100644


def _holds_only(tree: Tree, folder: bytes, gone: set[bytes]) -> bool:
    """Whether a directory holds nothing but files that are to be removed."""
    names = tree.children(folder)
    for name in names:
        path = folder + b"/" + name
        status = tree.lstat(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            if not _holds_only(tree, path, gone):
                return False
        elif path not in gone:
            return False
    return bool(names)


async def write_files(source: Source, git: Git, steps: list[Step]) -> None:
    """Have each path be as it is to be; what is so already stays untouched.

    Raises:
        InfrastructureFault: A file cannot be written; to do it again goes on with it.
    """
    written = [step for step in steps if step.after is not None]
    try:
        await source.actor.call(lambda: _remove(source, steps))
        for start in range(0, len(written), _AT_ONCE):
            some = written[start : start + _AT_ONCE]
            contents = await _contents(git, [step.after[1] for step in some if step.after])
            await source.actor.call(lambda: _write_all(source, some, contents))  # noqa: B023 - awaited at once
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write a file in {str(source.root)!r}: {exc.strerror}; {next_step(exc)}, and deliver again"
        ) from exc


async def _contents(git: Git, names: list[str]) -> list[bytes]:
    asked = "".join(f"{name}\n" for name in names).encode()
    told = (await git.run("cat-file", "--batch", stdin=asked, output_limit_bytes=_MOST_BYTES)).stdout
    found, position = [], 0
    for _ in names:
        start = told.index(b"\n", position) + 1
        size = int(told[position:start].split()[2])
        found.append(told[start : start + size])
        position = start + size + 1
    return found


def _remove(source: Source, steps: list[Step]) -> None:
    with Tree(source.root) as tree:
        for step in steps:
            if step.after is None:
                status = tree.lstat(step.path)
                if status is not None and not stat.S_ISDIR(status.st_mode):
                    tree.unlink(step.path)
                    tree.remove_empty_parents(step.path)


def _write_all(source: Source, steps: list[Step], contents: list[bytes]) -> None:
    with Tree(source.root) as tree:
        for step, data in zip(steps, contents, strict=True):
            _write(tree, source, step, data)


def _write(tree: Tree, source: Source, step: Step, data: bytes) -> None:
    assert step.after is not None
    folder, _, name = step.path.rpartition(b"/")
    beside = (
        (folder + b"/" if folder else b"") + b".ringfence-" + hashlib.sha256(name).hexdigest()[:16].encode()
    )
    if _state(tree, source, step, set()) == step.after:
        return
    tree.directory(folder, create=True)
    tree.unlink(beside)
    if step.after[0] == 0o120000:
        tree.link(beside, data)
    else:
        tree.write(beside, data, 0o777 if step.after[0] == 0o100755 else 0o666)
    tree.move(beside, step.path)
