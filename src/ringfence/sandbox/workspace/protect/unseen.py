"""What was not looked at before a fence is built: refused, or kept shut.

A socket that was not found is not covered, and a repository that was not found is not guarded. An earlier run
may have seen to that, so it is no matter for a note.
"""

from collections.abc import Mapping
from pathlib import Path

from ringfence.errors import PolicyRefused
from ringfence.sandbox.workspace.snapshot.survey import ELSEWHERE, UNREADABLE

_MAX_SHUT = 100


def refuse_unseen(workspace: Path, blindness: str) -> None:
    """Refuse to show a workspace that was not wholly looked over.

    Raises:
        PolicyRefused: It was not.
    """
    if blindness:
        raise PolicyRefused(
            f"workspace {str(workspace)!r} was not looked over to its end, and a socket or git repository that was"
            f" not found would be open to the agent: {blindness}; or use mode 'clone', which shows files only",
            rule="workspace-unseen",
        )


def shut_in(closed: Mapping[bytes, str]) -> tuple[bytes, ...]:
    """Directories that their owner shut. Mounted read-only, they stay so: an agent could open them, and go in.

    Args:
        closed: What was not looked into, and why; directories end in a slash.

    Raises:
        PolicyRefused: There are more than can be mounted.
    """
    shut = tuple(
        path[:-1]
        for path, why in sorted(closed.items())
        if path.endswith(b"/") and path != ELSEWHERE and why.startswith(UNREADABLE)
    )
    if len(shut) > _MAX_SHUT:
        raise PolicyRefused(
            f"{len(shut)} directories in the workspace cannot be read, and {_MAX_SHUT} can be kept shut; let their"
            " owner read them, remove them, or use mode 'clone'",
            rule="too-many-shut",
        )
    return shut
