"""Runs the engine's conformance checks on each kind of database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.engine.conformance import DEATH, LIFE, Check, Ground
from tests.engine.grounds import DatabaseGround
from tests.postgres import Cluster

BACKENDS = ["sqlite", "postgres"]


def _ground(backend: str, folder: Path, request: pytest.FixtureRequest) -> Ground:
    if backend == "sqlite":
        return DatabaseGround(f"sqlite:///{folder / 'engine.db'}", folder)
    running: Cluster = request.getfixturevalue("postgres")
    return DatabaseGround(running.make_database(), folder)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            backend,
            marks=[
                pytest.mark.xdist_group(f"engine-{backend}"),
                pytest.mark.slow,
            ],
        )
        for backend in BACKENDS
    ],
)
async def at_work(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Ground]:
    """A database on which one executor runs, for all checks of `LIFE`."""
    ground = _ground(request.param, tmp_path_factory.mktemp("at-work"), request)
    async with ground.start():
        yield ground


@pytest.mark.parametrize("check", LIFE, ids=lambda check: check.__name__)
async def test_workflows_conform(at_work: Ground, check: Check) -> None:
    """The engine keeps its promises about workflows while all executors live."""
    await check(at_work)


_ON_POSTGRES = {"work_outlives_its_executor", "executors_share_the_work"}
"""The checks by which `make test` tries executors on Postgres; it tries all of them on SQLite."""

_IN_FULL = pytest.mark.full("the check is tried on SQLite; two executors at once are tried on Postgres, too")

_DEATHS = [
    pytest.param(
        backend,
        check,
        id=f"{backend}-{check.__name__}",
        marks=[
            pytest.mark.slow,
            *([_IN_FULL] if backend == "postgres" and check.__name__ not in _ON_POSTGRES else []),
        ],
    )
    for backend in BACKENDS
    for check in DEATH
]


@pytest.mark.parametrize(("backend", "check"), _DEATHS)
async def test_executors_conform(
    backend: str, check: Check, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The engine keeps its promises about executors that start, leave and die."""
    await check(_ground(backend, tmp_path, request))
