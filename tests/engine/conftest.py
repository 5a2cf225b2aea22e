"""Databases for the engine's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import Cluster, cluster


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A Postgres for this session (for this pytest worker, where tests run in parallel)."""
    with cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'engine' / 'engine.db'}"
    running: Cluster = request.getfixturevalue("postgres")
    return running.make_database()
