import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from .conftest import body

COMMAND = [sys.executable, "-m", "ringfence.testing.scripted_model"]


@pytest.mark.slow
def test_it_serves_until_interrupted(tmp_path: Path):
    """The base URL on stdout; SIGINT ends it with 0 and no noise."""
    script = tmp_path / "script.yaml"
    script.write_text("turns: [{text: hello, drop: {after_events: 1}}]")
    with subprocess.Popen(
        [*COMMAND, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx2.Client(base_url=url, headers={"x-api-key": "x"}, trust_env=False) as client:
            with pytest.raises(httpx2.RemoteProtocolError):
                client.post("/v1/messages", json=body(stream=True))
            reply = client.post("/v1/messages", json=body()).json()
        process.send_signal(signal.SIGINT)
        _, noise = process.communicate(timeout=20)
    assert reply["content"][0]["text"] == "hello"
    assert (process.returncode, noise) == (0, "")


def test_a_bad_script_ends_it_with_the_code_of_configuration(tmp_path: Path):
    """One line, exit code 78."""
    done = subprocess.run(
        [*COMMAND, str(tmp_path / "absent.yaml")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
