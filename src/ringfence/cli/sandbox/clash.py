"""Who is in the way: a refusal names the run that holds a workspace, and people know standing sandboxes by name."""

from contextlib import suppress

from ringfence.errors import RecordError


def in_the_way(refusal: str) -> str | None:
    """What to do about the standing sandbox whose run a refusal names; None if it names none."""
    from ringfence.sandbox.supervisor.directory import list_directories, standing_root

    if "run '" not in refusal:
        return None
    for directory in list_directories(standing_root()):
        state = None
        with suppress(RecordError):  # of another version
            state = directory.read_state()
        if state is not None and state.run_id is not None and state.run_id in refusal:
            name = directory.name
            return (
                f"the standing sandbox {name!r} works there; `ringfence sandbox exec {name} -- CMD` is "
                f"another command in it, `ringfence sandbox rm {name}` ends it"
            )
    return None
