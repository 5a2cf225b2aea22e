"""The crew's database."""

from pathlib import Path

from ringfence.config.old_names import fleet_database
from ringfence.config.paths import make_private_dir, state_dir
from ringfence.database import Database as AnyDatabase
from ringfence.fleet.store.tables import METADATA


def sqlite_url(state: Path | None = None) -> str:
    """Where the crew's own database is, when no other is named."""
    return f"sqlite:///{fleet_database(make_private_dir((state or state_dir()) / 'fleet'))}"


class Database(AnyDatabase):
    """Jobs, schedules and what agents have spent.

    Args:
        url: `sqlite:///FILE` or `postgresql://...`.
        is_patient: As for any.

    Raises:
        UsageError: The URL is none of the two.
    """

    def __init__(self, url: str, *, is_patient: bool = False) -> None:
        super().__init__(url, METADATA, what="the crew's database", is_patient=is_patient)
