"""Who is in the way: a refusal names the run that holds a workspace, and people know standing sandboxes by name."""

from contextlib import suppress

from ringfence.errors import RecordError


def in_the_way(refusal: str) -> str | None:
    """What to do about the standing sandbox whose run a refusal names; None if it names none."""
    from ringfence.sandbox.supervisor.place import places_in, standing_dir
    from ringfence.sandbox.supervisor.state import read_state

    if "run '" not in refusal:
        return None
    for place in places_in(standing_dir()):
        state = None
        with suppress(RecordError):  # of another version
            state = read_state(place)
        if state is not None and state.run_id is not None and state.run_id in refusal:
            return (
                f"the standing sandbox {place.name!r} works there; `ringfence sandbox exec {place.name} -- CMD` is "
                f"another command in it, `ringfence sandbox rm {place.name}` ends it"
            )
    return None
