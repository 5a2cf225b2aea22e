"""Notes of a checkpoint: what was done to files for it, by name."""

import os

from ringfence.sandbox.workspace.snapshot.taking import Taken

_SHOWN = 20


def unlocked_note(paths: tuple[bytes, ...]) -> tuple[str, ...]:
    """Name files whose permissions were restored; empty if there were none."""
    return _named("restored the owner's permissions on", paths)


def set_id_notes(taken: Taken) -> tuple[str, ...]:
    """Name the set-id files that a run changed."""
    return (
        *_named("changed, and no longer set-user-ID or set-group-ID", taken.disarmed),
        *_named(
            "changed, and still set-user-ID or set-group-ID, as another user owns them; look at them, then "
            "chmod ug-s as their owner",
            taken.armed,
        ),
    )


def _named(what: str, paths: tuple[bytes, ...]) -> tuple[str, ...]:
    """A note that names files; none where there are none."""
    if not paths:
        return ()
    names = ", ".join(repr(os.fsdecode(path) or ".") for path in paths[:_SHOWN])
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return (f"{what}: {names}{more}",)
