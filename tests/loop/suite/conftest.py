"""A project in a real sandbox, and its checks run there."""

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringfence.check import Check, Report, run_check
from ringfence.sandbox import Mount, Sandbox, SandboxSpec

OTHER_UID = 1500

_PYTHON = getattr(sys, "_base_executable", sys.executable)
_PACKAGES = Path(pytest.__file__).parents[1]
_INSIDE = "/packages"
ENVIRONMENT = {"PYTHONPATH": _INSIDE, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""The packages of these tests, shown inside; of pytest's plugins none but those that a test names."""
PYTEST = f"{_PYTHON} -m pytest -q"
COMMANDS = {"pytest": PYTEST, "unittest": f"{_PYTHON} -m unittest discover", "node": "node --test"}

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")
Run = Callable[..., Awaitable[Report]]


@pytest.fixture
def project() -> Iterator[Callable[[Mapping[str, str]], Path]]:
    """Makes a directory with these files, which a sandbox may be lent."""
    made = list[Path]()

    def make(files: Mapping[str, str]) -> Path:
        root = Path(tempfile.mkdtemp(prefix="ringfence-test-"))
        made.append(root)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        if os.geteuid() == 0:
            for path in (root, *root.rglob("*")):
                os.chown(path, OTHER_UID, OTHER_UID)
        return root

    yield make
    for root in made:
        shutil.rmtree(root)


@pytest.fixture
def run(project: Callable[[Mapping[str, str]], Path]) -> Run:
    """Runs a check on these files in a sandbox."""

    @asynccontextmanager
    async def opened(files: Mapping[str, str]) -> AsyncIterator[Sandbox]:
        spec = SandboxSpec(
            backend="bubblewrap",
            workspace=project(files),
            mounts=(Mount(source=_PACKAGES, target=_INSIDE),),
            env=ENVIRONMENT,
        )
        async with Sandbox.open(spec) as sandbox:
            yield sandbox

    async def of(
        files: Mapping[str, str],
        *,
        runner: str | None = "pytest",
        command: str | None = None,
        canary: bool = True,
        timeout_s: float = 60.0,
        test_files: tuple[str, ...] = (),
        only: str | None = None,
    ) -> Report:
        check = Check("test", "tests", command or COMMANDS[runner or ""], timeout_s, runner, only=only)
        async with opened(files) as sandbox:
            return await run_check(check, sandbox, canary=canary, test_files=test_files)

    return of
