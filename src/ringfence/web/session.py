"""Manages sign-in: a link that works once, and for a short time, gives a browser a session."""

import hashlib
import secrets
import time
from collections.abc import Callable

LINK_S = 600.0
"""How long a link works."""
IDLE_S = 12 * 3600.0
"""A session ends after this time without a request."""
_MAX_SESSIONS = 100
"""The maximum number of sessions; a further one ends the one that was unused for longest."""


class Sessions:
    """The sessions of signed-in browsers, and the one link that signs in the next browser.

    Only digests of links and sessions are kept, and only in memory, so all sessions end with the process.

    Args:
        clock: Returns the time in seconds, from any origin.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._link, self._link_ends = "", 0.0
        self._sessions: dict[str, float] = {}  # the time of the last request of each; the oldest is first

    def new_link(self) -> str:
        """Replace the link with a new one, and return its token."""
        token = secrets.token_urlsafe(32)
        self._link, self._link_ends = _digest(token), self._clock() + LINK_S
        return token

    def redeem(self, token: str) -> str | None:
        """Use up the link and return the id of a new session; None if the token is not that of a link that works."""
        is_right = bool(self._link) and secrets.compare_digest(_digest(token), self._link)
        if not is_right or self._clock() >= self._link_ends:
            return None
        self._link = ""
        session = secrets.token_urlsafe(32)
        self._sessions[_digest(session)] = self._clock()
        while len(self._sessions) > _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session

    def is_valid(self, session: str) -> bool:
        """Whether a session id is that of a signed-in browser; if so, note that the session was used now."""
        digest, now = _digest(session), self._clock()
        used = self._sessions.pop(digest, None)
        if used is None or now >= used + IDLE_S:
            return False
        self._sessions[digest] = now
        return True


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
