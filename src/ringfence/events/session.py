"""What happens to the sessions of clients that are run inside."""

from ringfence.events.event import Event


class SessionResumed(Event, frozen=True, kw_only=True, tag="session.resumed"):
    """An earlier session is gone on with."""

    session_id: str
    """Ours, by which it is found again; of a fork, the new one's."""
    run: str
    """The last run of the session that is gone on with."""
    is_forked: bool
    differences: list[str]
    """What is not as it was then: `model: was A, is B`."""


class SessionKept(Event, frozen=True, kw_only=True, tag="session.kept"):
    """A session's files were brought out, to be gone on with."""

    session_id: str
    client_session_id: str
    """As the client names it."""
    files: int
    size_bytes: int
    problem: str = ""
    """Why not all of it could be kept."""


class SessionLost(Event, frozen=True, kw_only=True, tag="session.lost"):
    """The client did not find the session that it was to go on with; it was started afresh, once."""

    session_id: str
    client_session_id: str
    reason: str
    """In the client's words."""
