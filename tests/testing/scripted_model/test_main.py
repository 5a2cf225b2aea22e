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


@pytest.mark.slow
def test_it_serves_without_a_script_of_its_own(tmp_path: Path):
    """Then prompts carry theirs, or name one that was given with a name."""
    script = tmp_path / "script.yaml"
    script.write_text("turns: [{text: hello}]")
    with subprocess.Popen(
        [*COMMAND, "--named", f"greeting={script}"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with httpx2.Client(base_url=url, headers={"x-api-key": "x"}, trust_env=False) as client:
            asked = body({"role": "user", "content": '<scripted-model name="greeting"/>'})
            reply = client.post("/v1/messages", json=asked).json()
        process.send_signal(signal.SIGINT)
    assert reply["content"][0]["text"] == "hello"


@pytest.mark.slow
def test_a_name_without_a_file_is_a_mistake():
    """It says how it is written."""
    done = subprocess.run([*COMMAND, "--named", "x"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "'x' is not NAME=FILE" in done.stderr


@pytest.mark.slow
def test_a_bad_script_ends_it_with_the_code_of_configuration(tmp_path: Path):
    """One line, exit code 78."""
    done = subprocess.run(
        [*COMMAND, str(tmp_path / "absent.yaml")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 78
    assert done.stderr.count("\n") == 1
