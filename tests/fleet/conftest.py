"""Fixtures for fleets with daemons."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fleet.fleet_files import FleetFiles

from ringfence.removal import remove_tree

Make = Callable[..., FleetFiles]


def _crews(base: Path) -> Iterator[Make]:
    made: list[FleetFiles] = []

    def make() -> FleetFiles:
        made.append(FleetFiles(Path(tempfile.mkdtemp(dir=base))))
        return made[-1]

    yield make
    for crew in made:
        crew.down()
        remove_tree(crew.home)


@pytest.fixture
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetFiles]:
    """A fleet for one test; its daemon is stopped after the test."""
    for make in _crews(tmp_path_factory.getbasetemp()):
        yield make()


@pytest.fixture(scope="module")
def make_crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Return a function that makes fleets for all tests of a module."""
    yield from _crews(tmp_path_factory.getbasetemp())
