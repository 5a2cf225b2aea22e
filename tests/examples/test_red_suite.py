"""The example of the README: red as it stands, green after the agent of the script, by the demo itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples" / "red-suite"


def _suite(place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "-q"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_suite_is_red():
    """There is something to repair, in the words that the script waits for."""
    done = _suite(EXAMPLE)
    assert done.returncode == 1
    assert "FAILED (failures=5, errors=1)" in done.stderr
    assert "FAILED (failures=5, errors=1)" in (ROOT / "examples" / "red-suite.script.yaml").read_text()


def test_what_the_script_edits_makes_it_green(tmp_path: Path):
    """The edits of the script, and nothing else, repair the project."""
    from ringfence.model.scripted import load_script

    place = shutil.copytree(EXAMPLE, tmp_path / "red-suite")
    script = load_script(ROOT / "examples" / "red-suite.script.yaml")
    for turn in script.turns:
        for call in turn.tools:
            if call.name == "edit_file":
                file = place / call.input["path"]
                text = file.read_text()
                assert text.count(call.input["old_text"]) == 1
                file.write_text(text.replace(call.input["old_text"], call.input["new_text"]))
    assert _suite(place).returncode == 0


def _demo(place: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))
    }
    return subprocess.run(
        [ROOT / "scripts" / "demo.sh"],
        env={
            **environment,
            "TMPDIR": str(place),
            "DEMO_RINGFENCE": str(Path(sys.executable).with_name("ringfence")),
            **settings,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.mark.slow
def test_the_demo_ends_verified(tmp_path: Path):
    """`make demo` without a key: the scripted agent repairs the project in the fence, and all of it is told."""
    done = _demo(tmp_path)
    assert done.returncode == 0, done.stdout
    for said in ("No key is set", "succeeded: the check passed", "sealed", "Done: verified"):
        assert said in done.stdout


@pytest.mark.parametrize(("sandbox", "variable"), [("docker", "DOCKER_HOST"), ("podman", "CONTAINER_HOST")])
def test_a_demo_without_its_engine_says_which_one(tmp_path: Path, sandbox: str, variable: str):
    """`make demo SANDBOX=...` where that engine does not answer ends with one line of what to do."""
    nowhere = f"unix://{tmp_path / 'none.sock'}"
    done = _demo(tmp_path, SANDBOX=sandbox, IMAGE="", **{variable: nowhere})
    assert done.returncode == 125, done.stdout
    (said,) = done.stdout.splitlines()
    assert f"no {sandbox} engine answers" in said
    assert nowhere in said
