"""A fleet database for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.fleet.store.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database with its tables."""
    made = Database(f"sqlite:///{tmp_path / 'crew.db'}")
    made.create_tables()
    yield made
    made.close()
