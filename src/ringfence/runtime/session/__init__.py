"""Sessions of agent CLIs: their files, kept outside of every sandbox, written by one run at a time."""

from ringfence.runtime.session.store import SessionStore, is_locked, lock_session, sessions_dir
from ringfence.runtime.session.sync import RunSession, SessionPlan, SessionSync, open_session

__all__ = [
    "RunSession",
    "SessionPlan",
    "SessionStore",
    "SessionSync",
    "is_locked",
    "lock_session",
    "open_session",
    "sessions_dir",
]
