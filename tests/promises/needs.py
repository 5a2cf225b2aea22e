"""What some promises need of the machine; without it they are skipped, or fail where it must be there."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

Fence = tuple[str, ...]
"""Options that choose the kind of sandbox."""


@cache
def why_no_docker() -> str | None:
    """Why no container can be had; None: one can."""
    if not os.environ.get("TEST_CONTAINER_IMAGE"):
        return "TEST_CONTAINER_IMAGE names no image"
    asked = (
        subprocess.run(["docker", "info"], capture_output=True, check=False)
        if shutil.which("docker")
        else None
    )
    return None if asked is not None and asked.returncode == 0 else "no Docker answers"


def need_docker() -> str:
    """The image of containers; without an engine the test is skipped, or fails where there must be one."""
    if reason := why_no_docker():
        pytest.fail(reason) if os.environ.get("TEST_REQUIRES_ENGINES") else pytest.skip(reason)
    return os.environ["TEST_CONTAINER_IMAGE"]


def need_client(name: str) -> Path:
    """A real client's program."""
    patterns = {
        "claude": "node_modules/@anthropic-ai/claude-code-linux-*/claude",
        "codex": "node_modules/@openai/codex-linux-*/vendor/*/bin/codex",
    }
    folder = os.environ.get("TEST_CLIENTS", "")
    found = sorted(Path(folder).glob(patterns[name])) if folder else []
    if not found:
        reason = f"TEST_CLIENTS names no directory with {name}"
        pytest.fail(reason) if os.environ.get("TEST_REQUIRES_CLIENTS") else pytest.skip(reason)
    return found[0]


def need_root() -> None:
    """Who runs the tests is root."""
    if os.getuid() != 0:
        pytest.skip("only root has this")
