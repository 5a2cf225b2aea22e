"""Keeps what ringfence itself runs from out of the agent's reach, where that lies in the workspace."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ringfence.errors import PolicyRefused

_NEEDED = ("anyio", "msgspec", "pydantic")
"""Some of what ringfence needs: where these were loaded from, the rest will be, too."""


def check_own_program(workspace: Path) -> tuple[bytes, ...]:
    """See that what runs now on the host does not lie where an agent is about to write.

    The virtual environment that ringfence runs from may lie there, as it can be mounted read-only. So may the directory
    of the script that runs: it is the user's own. From now on it is searched last, so that nothing an agent puts there
    can take the place of a module that is imported later.

    Returns:
        What has to be read-only inside, relative to the workspace.

    Raises:
        PolicyRefused: Ringfence, its interpreter or a module path lies elsewhere in the workspace.
    """
    resolved = os.path.realpath(workspace)
    own = _own_places()
    lies_inside = {path: _lies_in(path, resolved) for path in {*own, *sys.path}}
    environment = _environment_in(resolved)
    is_read_only = {path: environment is not None and _lies_in(path, environment) for path in lies_inside}
    inside = [path for path in own if lies_inside[path] and not is_read_only[path]]
    if inside:
        raise PolicyRefused(
            f"ringfence itself runs from {inside[0]!r}, in the workspace, where an agent could change it; use mode "
            "'clone' (--mode clone; from Python: in a run) or 'read_only' (SandboxSpec(mode='read_only')), or install "
            "ringfence outside of the project",
            rule="workspace-runs-ringfence",
        )
    sys.path.sort(key=lambda path: lies_inside[path] and not is_read_only[path])
    return () if environment is None else (os.fsencode(os.path.relpath(environment, resolved)),)


def _environment_in(workspace: str) -> str | None:
    """The virtual environment of this interpreter, if it is a directory below the workspace that no link leads to."""
    prefix = os.path.normpath(sys.prefix)
    is_environment = sys.prefix != sys.base_prefix and os.path.isfile(f"{prefix}/pyvenv.cfg")  # noqa: PTH113 -- a text
    is_below = prefix.startswith(workspace.rstrip("/") + "/")
    return prefix if is_environment and is_below and os.path.realpath(prefix) == prefix else None


def _own_places() -> list[str]:
    """Where the interpreter, ringfence and what it needs lie; not where a script or a module lies that was named."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    named = {"", sys.path[0] if sys.path else "", str(Path(main).parent) if main else ""}
    needed = (sys.modules[name].__file__ for name in _NEEDED if name in sys.modules)
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.executable, str(Path(__file__).parents[3])}
    own |= {path for path in sys.path if path not in named}
    return sorted(filter(None, {*own, *needed}))


def _lies_in(path: str, workspace: str) -> bool:
    try:
        place = str(Path(path).absolute())
    except FileNotFoundError:  # relative to a directory that is gone: nothing is found there
        return False
    # All ways: a venv's python is a link that leads out of the workspace, and lies in it all the same; and who goes
    # through a directory in it and back (`project/sub/../../venv`) goes where an agent may put a link.
    inner = workspace.rstrip("/") + "/"
    ways = (*_passed(place), os.path.realpath(place))
    return any(way.startswith(inner) for way in ways) or os.path.normpath(place) == inner.rstrip("/")


def _passed(path: str) -> Iterator[str]:
    """Each place that a path goes through, `..` taken back: what lies above the workspace is no part of it."""
    place = "/"
    for part in path.split("/"):
        if part not in ("", "."):
            place = os.path.normpath(os.path.join(place, part))  # noqa: PTH118 -- `..` of a text is wanted
            yield place
