"""Which programs the host runs."""

import os
from pathlib import Path

import pytest

from ringfence.errors import InfrastructureFault
from ringfence.process import host_program, run_process


def test_a_program_is_the_systems_whatever_path_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An activated venv puts the workspace, and so what an agent wrote, on PATH."""
    planted = tmp_path / "git"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert not host_program("git").startswith(str(tmp_path))


@pytest.mark.anyio
async def test_a_bare_name_is_not_looked_up_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where a program is named without its path."""
    planted = tmp_path / "only-on-path"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureFault, match="'only-on-path' is not among the system's programs"):
        await run_process(["only-on-path"])
