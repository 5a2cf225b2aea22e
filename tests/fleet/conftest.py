"""Crews with daemons."""

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
    """A crew of the test's own; its daemon is ended after the test."""
    for make in _crews(tmp_path_factory.getbasetemp()):
        yield make()


@pytest.fixture(scope="module")
def make_crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Crews that the tests of a module share."""
    yield from _crews(tmp_path_factory.getbasetemp())
