"""The guest's way into a sandbox."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.loader import guest_arguments, guest_payload


def test_guest_of_a_system_python() -> None:
    """An interpreter of another version, without site packages, takes the modules and greets."""
    interpreter = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    done = subprocess.run(
        [interpreter, *guest_arguments()], input=guest_payload(), capture_output=True, timeout=30, check=False
    )
    length, channel, kind = frames.HEADER.unpack_from(done.stdout)
    assert (channel, kind, done.returncode, done.stderr) == (0, frames.HELLO, 0, b"")
    record = dict(frames.decode_record(done.stdout[frames.HEADER.size :][:length]))
    assert (record["version"], record["undumpable"]) == (frames.VERSION, "1")


_WITHOUT_COMPILING = """
import sys
from ringfence.sandbox.protocol import loader
compiled = []
sys.addaudithook(lambda event, _: compiled.append(event) if event == "compile" else None)
loader.guest_payload()
print(len(compiled))
"""


@pytest.mark.slow
def test_what_python_keeps_is_not_compiled_again(tmp_path: Path) -> None:
    """Only the first process that opens a sandbox compiles the guest; the next finds its code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    counts = [
        int(subprocess.check_output([sys.executable, "-c", _WITHOUT_COMPILING], env=environment, timeout=30))
        for _ in range(2)
    ]
    assert (counts[0] > 0, counts[1]) == (True, 0)


def test_cut_off_modules() -> None:
    """A loader whose stream ends within the modules ends with it."""
    done = subprocess.run(
        [sys.executable, *guest_arguments()],
        input=guest_payload()[:5000],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, b"")
