"""A loop's whole way, done by a process that may be killed at any point, and done again: what it comes to.

Run as a program it forks: one child is killed as it is about to start its n-th process, or to make, move, link or
remove its n-th file; another does all of it again.
"""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import anyio
from tests.loop.repository.conftest import TRAILERS, make, run_git

from ringfence.loop.repository import Candidate, Change, LoopRepository

_EVENTS = frozenset(
    {"subprocess.Popen", "os.rename", "os.link", "os.remove", "os.mkdir", "os.symlink", "os.rmdir"}
)
AT_S = 1_700_000_000


async def tell(source: Path, place: Path) -> dict[str, Any]:
    """Two stories at once, one of them rejected first, merged and delivered with the files."""
    loop = await make(source, place, loop="l1")
    base = loop.base
    for number in (0, 1):
        await loop.checkout(number, base)
    bad = await _commit(loop, base, Change(b"bad", 0o100644, b"bad"), Change(b"a.txt", None))
    await loop.checkout(0, bad)
    patch = await loop.keep_rejected(base, bad, story="S1", attempt=1)
    tests = await _commit(loop, base, Change(b"test_one", 0o100644, b"t"))
    code = await _commit(loop, tests, Change(b"sub/one", 0o100755, b"1"), Change(b"run.sh", None))
    tree = await loop.checkout(0, code)
    second = await _commit(loop, base, Change(b"two", 0o120000, b"a.txt"), Change(b"a.txt", 0o100644, b"2"))
    first_end = await loop.fast_forward_or_rebase(code)
    again = await loop.fast_forward_or_rebase(second)
    if isinstance(again, Candidate):  # not so where the killed one had it merged already
        await loop.checkout(1, again.tip)
        await loop.fast_forward_or_rebase(again.tip)
    found = await loop.merge_to_user()
    return {
        "commits": [base, bad, tests, code, second],
        "ends": [str(first_end), str(found)],
        "tip": await loop.tip(),
        "files": sorted(str(path.relative_to(tree.path)) for path in tree.path.iterdir()),
        "patch": None if patch is None else patch.read_bytes().hex(),
    }


async def _commit(loop: LoopRepository, base: str, *changes: Change) -> str:
    return await loop.commit(base, changes, message="A title", trailers=TRAILERS, at_s=AT_S)


def state_of(source: Path, place: Path) -> dict[str, Any]:
    """What the user's repository and the loop's place hold."""
    run_git(source, "fsck", "--strict")
    run_git(place / "loop.git", "fsck", "--strict")
    return {
        "refs": run_git(source, "for-each-ref", "--format=%(refname) %(objectname)").splitlines(),
        "own refs": run_git(
            place / "loop.git", "for-each-ref", "--format=%(refname) %(objectname)"
        ).splitlines(),
        "status": run_git(source, "status", "--porcelain", "--ignored", "-uall"),
        "head": run_git(source, "rev-parse", "HEAD"),
        "left": sorted(
            str(path.relative_to(place.parent))
            for folder in (place, source / ".git")
            for path in folder.rglob("*")
            if path.name.endswith((".lock", ".new"))
            or ("ringfence" in path.name and path.parent.name == ".git")
        ),
    }


@contextmanager
def child() -> Iterator[bool]:
    """True in a new process, which ends with the block; False in the old one, when it has ended."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            raise SystemExit(f"a process came to {status}")
        yield False
        return
    try:
        yield True
        os._exit(0)
    except BaseException:  # noqa: BLE001 - of a fork, which must not go on as the parent
        traceback.print_exc()
        os._exit(1)


def kill_at(number: int, delay_s: float) -> None:
    """Kill this process at its n-th event, or so long after it that what it started is at work."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in _EVENTS:
            return
        seen += 1
        if seen == number and delay_s:
            timer = Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL))
            timer.daemon = True
            timer.start()
        elif seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def events(source: Path, place: Path, file: Path) -> None:
    """Do it undisturbed; write the number of events to a file."""
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        count += event in _EVENTS

    sys.addaudithook(hook)
    result = anyio.run(tell, source, place)
    file.write_text(json.dumps([count, result]))


def try_point(made: Path, root: Path, number: int, delay_s: float) -> dict[str, Any]:
    """Kill one at a point, and have another do it all."""
    # All at one path, which is in what a patch or message may hold.
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    source, place, told = root / "project", root / "loop", root / "told"
    shutil.copytree(made, source, symlinks=True)
    run_git(source, "update-index", "-q", "--refresh")
    with child() as is_child:
        if is_child:
            kill_at(number, delay_s)
            anyio.run(tell, source, place)
    with child() as is_child:
        if is_child:
            events(source, place, told)
    count, result = json.loads(told.read_text())
    return {"result": result, "state": state_of(source, place), "count": count}


def main() -> None:
    """Try every `step`-th point from `first`, against what comes of it undisturbed; tell what differs."""
    made, root, first, step, delay_ms = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:6])
    wanted = try_point(made, root, 10**9, 0)  # nobody is killed; what was done is done again
    shutil.rmtree(root)
    root.mkdir()
    alone = root / "told"
    shutil.copytree(made, root / "project", symlinks=True)
    with child() as is_child:
        if is_child:
            events(root / "project", root / "loop", alone)
    count, result = json.loads(alone.read_text())
    different = {} if result == wanted["result"] else {0: [result, wanted["result"]]}
    tried = range(first, count + 1, step)
    for number in tried:
        found = try_point(made, root, number, delay_ms / 1000)
        for part in ("result", "state"):
            if found[part] != wanted[part]:
                different[number] = [found[part], wanted[part]]
    sys.stdout.write(json.dumps({"tried": len(tried), "of": count, "different": different}))


if __name__ == "__main__":
    main()
