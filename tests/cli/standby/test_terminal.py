"""On a terminal a command from a standby looks as it does by itself."""

import fcntl
import json
import os
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest
from tests.cli.standby.conftest import COMMAND, Lab

pytestmark = pytest.mark.slow


def _shown(lab: Lab, words: list[str | Path], env: dict[str, str]) -> list[str]:
    """The last lines that a command writes to a terminal of 61 columns, without their figures."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 61, 0, 0))
    environment = {**lab.environment, "TERM": "xterm-256color", **env}
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        environment.pop(name, None)
    with subprocess.Popen(
        [*COMMAND, *map(str, words)],
        env=environment,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    ):
        os.close(its)
        seen = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:  # nobody has it open any more
                break
            seen += more
    os.close(ours)
    # Frames of the live view are drawn at other moments each time; what stands below them stays.
    return [re.sub(r"[0-9a-f.]+( ?m?s\b)?", "#", line) for line in seen.decode().splitlines()[-4:]]


def test_a_run_looks_the_same(shared: Lab, place: Path, tmp_path: Path):
    """Colours, width, the lines that stay."""
    script = tmp_path / "script.yaml"
    script.write_text(json.dumps({"turns": [{"text": "many words " * 20}]}))
    words: list[str | Path] = ["run", "x", "-C", place, "--model", f"scripted:{script}"]
    shown, served = shared.served(lambda: _shown(shared, words, {}))
    assert served == 1
    assert "\x1b[" in shown[-1]
    assert shown == _shown(shared, words, {"RINGFENCE_STANDBY": "0"})


def test_what_reads_a_terminal_starts_by_itself(shared: Lab, place: Path):
    """A fork has no terminal of its own: nothing would stop it in the background."""
    _, served = shared.served(lambda: _shown(shared, ["exec", "-C", place, "--", "true"], {}))
    assert served == 0
