"""The fleet's database."""

from pathlib import Path

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.database import Database as AnyDatabase
from ringfence.fleet.state_directory import database_file
from ringfence.fleet.store.tables import METADATA


def sqlite_url(state: Path | None = None, file: Path | None = None) -> str:
    """Where a fleet's own database is, when no other is named; of the first fleet, if no file is given."""
    return f"sqlite:///{database_file(make_private_dir((state or state_dir()) / 'fleet'), file)}"


class Database(AnyDatabase):
    """Jobs, schedules and what agents have spent.

    Args:
        url: `sqlite:///FILE` or `postgresql://...`.
        is_patient: As for any.

    Raises:
        UsageError: The URL is none of the two.
    """

    def __init__(self, url: str, *, is_patient: bool = False) -> None:
        super().__init__(url, METADATA, what="the fleet's database", is_patient=is_patient)
