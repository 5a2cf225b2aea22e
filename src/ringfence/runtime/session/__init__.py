"""Sessions of clients: their files, kept outside of every sandbox, written by one run at a time."""

from ringfence.runtime.session.carrying import CarriedSession, SessionPlan, carried
from ringfence.runtime.session.home import SessionHome, held_session, sessions_dir
from ringfence.runtime.session.keeper import SessionKeeper

__all__ = [
    "CarriedSession",
    "SessionHome",
    "SessionKeeper",
    "SessionPlan",
    "carried",
    "held_session",
    "sessions_dir",
]
