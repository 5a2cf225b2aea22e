"""Which of many paths kept rules ignore, answered by git where there is nothing to meet: in an empty directory.

The workspace itself is not entered, so neither its size nor what lies in it has a say in how long this takes.
"""

from collections.abc import Iterable
from pathlib import Path

from ringfence.sandbox.workspace.actor import Actor
from ringfence.sandbox.workspace.git import Git, write_clean_git_dir
from ringfence.sandbox.workspace.ignore import Rules, flatten

_TIMEOUT_S = 60.0


async def ignored_among(paths: Iterable[bytes], rules: Rules, directory: Path) -> set[bytes]:
    """Those of `paths` that the rules ignore.

    Args:
        paths: Files, relative to the workspace.
        rules: Each repository's hold for what lies in it.
        directory: Is there and empty.

    Raises:
        InfrastructureFault: The rules take too long on these names.
    """
    found: set[bytes] = set()
    work_tree = directory / "nothing"
    work_tree.mkdir()
    for number, (place, inside) in enumerate(_by_repository(paths, rules).items()):
        git_dir = directory / str(number)
        write_clean_git_dir(git_dir)
        (git_dir / "info" / "exclude").write_bytes(flatten(rules, place))
        # A dot first: what begins with a colon has a meaning of its own to git.
        asked = b"\0".join(b"./" + path[len(place) :] for path in inside)
        git = Git(git_dir, work_tree, Actor.current())
        told = await git.run(
            "check-ignore", "-z", "--no-index", "--stdin", stdin=asked, timeout_s=_TIMEOUT_S, accept=(0, 1)
        )
        found.update(place + path[2:] for path in told.stdout.split(b"\0") if path)
    return found


def _by_repository(paths: Iterable[bytes], rules: Rules) -> dict[bytes, list[bytes]]:
    groups: dict[bytes, list[bytes]] = {}
    for path in paths:
        groups.setdefault(_place_of(path, rules), []).append(path)
    return groups


def _place_of(path: bytes, rules: Rules) -> bytes:
    end = path.rfind(b"/") + 1
    while end > 0 and path[:end] not in rules.excludes:
        end = path.rfind(b"/", 0, end - 1) + 1
    return path[:end]
