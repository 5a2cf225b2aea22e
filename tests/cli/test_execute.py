"""`ringfence exec` without streams of its own."""

import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import COMMAND

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("redirection", ["<&-", ">&-", "2>&-", "</dev/null", ">/dev/full"])
def test_streams_that_are_not_there(workspace: Path, redirection: str):
    """Started without a stream, or with one that takes nothing, it does not fall over."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", *COMMAND]
    command += ["exec", "-C", str(workspace), "--", "sh", "-c", "cat; echo x"]
    process = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in process.stderr + process.stdout
    # A full disk is noticed while output is written (as if a reader had left), or when the last of it is.
    assert process.returncode in ((75, 141) if "full" in redirection else (0,))
