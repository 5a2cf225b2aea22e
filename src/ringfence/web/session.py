"""Sign-in: a link that works once gives a browser its session cookie."""

import hashlib
import secrets
from collections.abc import Callable

_MAX_SESSIONS = 100
"""The oldest session ends when there are more."""


class Sessions:
    """The browsers that are signed in, and the one link that signs in the next browser.

    Only digests of links and sessions are kept, and only in memory: all sessions end with the process.

    Args:
        on_link: Called with the token of each new link: the first one, and one after each sign-in.
    """

    def __init__(self, on_link: Callable[[str], None]) -> None:
        self._on_link = on_link
        self._link = ""
        self._sessions: dict[str, None] = {}  # in the order of sign-in

    def new_link(self) -> str:
        """Replace the link by a new one, and return its token."""
        token = secrets.token_urlsafe(32)
        self._link = _digest(token)
        self._on_link(token)
        return token

    def redeem(self, token: str) -> str | None:
        """The id of a new session if this is the token of the current link, which is then used up; else None."""
        if not self._link or not secrets.compare_digest(_digest(token), self._link):
            return None
        session = secrets.token_urlsafe(32)
        self._sessions[_digest(session)] = None
        while len(self._sessions) > _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self.new_link()
        return session

    def is_valid(self, session: str) -> bool:
        """Whether a browser with this session id is signed in."""
        return _digest(session) in self._sessions


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
