"""The GitHub Action, whose steps are run as GitHub runs them: by bash, with inputs in the environment."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.promises.attested import change, journal_key
from tests.promises.product import PYTHON, Product

ACTION = Path(__file__).resolve().parents[2] / "action"
pytestmark = pytest.mark.skipif(not ACTION.is_dir(), reason="the action is in a checkout only")


def description() -> Any:
    """What `action.yml` holds."""
    return YAML(typ="safe").load((ACTION / "action.yml").read_text())


@pytest.fixture
def product(product: Product) -> Product:
    """A project whose last commit is attested, and a runner with ringfence installed."""
    change(product).does("apply", "--commit", "--attest")
    installed = product.place / "runner" / "ringfence" / "bin"
    installed.mkdir(parents=True)
    (installed / "ringfence").write_text(f'#!/bin/sh\nexec "{PYTHON}" -P -m ringfence "$@"\n')
    (installed / "ringfence").chmod(0o755)
    return product


def run_step(product: Product, number: int, **inputs: str) -> "subprocess.CompletedProcess[str]":
    """Run a step with the default of each input, unless another value is given, as GitHub's runner does."""
    values = {name: each["default"] for name, each in description()["inputs"].items()}
    values |= {name.replace("_", "-"): value for name, value in inputs.items()}
    step = description()["runs"]["steps"][number]
    given = {
        name: values[re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", text)[1]]  # type: ignore[index]
        for name, text in step["env"].items()
    }
    places = {
        "GITHUB_ACTION_PATH": str(ACTION),
        "GITHUB_WORKSPACE": str(product.project),
        "RUNNER_TEMP": str(product.place / "runner"),
    }
    script = product.place / "step.sh"
    script.write_text(step["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
        cwd=product.project,
        env=product.variables(**places, **given),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def verify(product: Product, **inputs: str) -> "subprocess.CompletedProcess[str]":
    """Run the step that verifies, with the key of the project's machine."""
    return run_step(product, 1, **{"keys": journal_key(product).read_text(), **inputs})


def test_attested(product: Product) -> None:
    """A tree that is the attested one passes."""
    done = verify(product)
    assert done.returncode == 0, done
    assert verify(product, check="grep -q two app.py").returncode == 0


@pytest.mark.parametrize("name", ["app.py", "added.py", "new.txt"])
def test_tampered(product: Product, name: str) -> None:
    """A commit with another file than the attested one fails, with the attested commit's note copied to it."""
    product.write(name, "tampered\n")
    product.git("add", "-A")
    product.git("commit", "-q", "-m", "more")
    assert verify(product).returncode == 1
    product.git("notes", "--ref=ringfence", "copy", "HEAD~", "HEAD")
    done = verify(product)
    assert done.returncode == 3
    assert name in done.stdout + done.stderr


def test_keys_of_the_pull_request(product: Product) -> None:
    """A pull request that brings its own keys and its own attestation fails."""
    (product.project / "allowed_signers").write_text("*")
    assert verify(product, keys="", keys_file="allowed_signers").returncode == 2
    key = product.place / "theirs"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
    product.does("runs attest", "last", "--attach", "HEAD", "--sign-with", f"ssh:{key}")
    assert verify(product).returncode != 0


def test_no_key(product: Product) -> None:
    """Without a key nothing is verified, and the step fails."""
    assert verify(product, keys="").returncode == 2


@pytest.mark.parametrize(
    "name", ["keys", "tree", "commit", "attestation", "check", "any-state", "anchors", "version"]
)
def test_inputs_are_no_commands(product: Product, name: str) -> None:
    """No input is ever a command, a further option or a pattern of file names."""
    mark = product.place / "mark"
    for text in (f"$(touch {mark}) `touch {mark}`; touch {mark} *", f"x\ntouch {mark}", "--any-state"):
        number = 0 if name == "version" else 1
        inputs = {"keys": journal_key(product).read_text(), name.replace("-", "_"): text}
        assert run_step(product, number, **inputs).returncode != 0, text
    assert not mark.exists()


def test_modules_of_the_pull_request(product: Product) -> None:
    """No module of the verified tree is imported."""
    mark = product.place / "mark"
    for name in ("ringfence", "sitecustomize", "usercustomize", "venv", "json", "typer"):
        product.write(f"{name}.py", f"open({str(mark)!r}, 'w')\n")
    verify(product)
    assert not mark.exists()


def test_output_is_no_command_of_the_runner(product: Product) -> None:
    """What a tree is called cannot be a command for GitHub's runner: commands are stopped around the output."""
    lines = verify(product).stdout.splitlines()
    assert re.fullmatch(r"::stop-commands::[0-9a-f]{32}", lines[0])
    assert lines[-1] == f"::{lines[0].rpartition('::')[2]}::"
    assert lines[0] != verify(product).stdout.splitlines()[0]


def test_description() -> None:
    """Every input reaches a step by the environment alone, and no text of a step contains an expression."""
    document = description()
    assert set(document) == {"name", "description", "inputs", "runs"}
    assert all(set(each) == {"description", "required", "default"} for each in document["inputs"].values())
    steps = document["runs"]["steps"]
    assert document["runs"]["using"] == "composite"
    assert all(set(step) == {"name", "shell", "env", "run"} and step["shell"] == "bash" for step in steps)
    assert not any("${{" in step["run"] for step in steps)
    used = {text for step in steps for text in step["env"].values()}
    assert used == {f"${{{{ inputs.{name} }}}}" for name in document["inputs"]}
    assert {Path(step["run"].strip().strip('"')).name for step in steps} == {"install.sh", "verify.sh"}
    assert all((ACTION / name).stat().st_mode & 0o111 for name in ("install.sh", "verify.sh"))
