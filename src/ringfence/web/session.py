"""Manages sign-in: a link that works once gives a browser a session."""

import hashlib
import secrets
from collections.abc import Callable

_MAX_SESSIONS = 100
"""The maximum number of sessions; a further one ends the oldest."""


class Sessions:
    """The sessions of signed-in browsers, and the one link that signs in the next browser.

    Only digests of links and sessions are kept, and only in memory, so all sessions end with the process.

    Args:
        on_link: Called with the token of each new link: the first one, and one after each sign-in.
    """

    def __init__(self, on_link: Callable[[str], None]) -> None:
        self._on_link = on_link
        self._link = ""
        self._sessions: dict[str, None] = {}  # in the order of sign-in

    def new_link(self) -> str:
        """Replace the link with a new one, and return its token."""
        token = secrets.token_urlsafe(32)
        self._link = _digest(token)
        self._on_link(token)
        return token

    def redeem(self, token: str) -> str | None:
        """Use up the link and return the id of a new session; None if the token is not that of the current link."""
        if not self._link or not secrets.compare_digest(_digest(token), self._link):
            return None
        session = secrets.token_urlsafe(32)
        self._sessions[_digest(session)] = None
        while len(self._sessions) > _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self.new_link()
        return session

    def is_valid(self, session: str) -> bool:
        """Whether a session id is that of a signed-in browser."""
        return _digest(session) in self._sessions


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
