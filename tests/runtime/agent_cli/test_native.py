"""Where a client's native program is found, whatever its installer put on PATH."""

import os
from pathlib import Path

import pytest

from ringfence.runtime.agent_cli.program import native_of, native_programs
from ringfence.runtime.transcript.translator import CliName

_MACHINE = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
PLATFORM = f"linux-{_MACHINE}"


def program(path: Path, head: bytes = b"\x7fELF program") -> Path:
    """A file that begins as native programs do, or otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head)
    path.chmod(0o755)
    return path


def installed(root: Path, client: CliName) -> tuple[Path, Path]:
    """A client as npm installs it in `root`: its launcher, and the native program."""
    modules = root / "node_modules"
    if client == "claude":
        launcher = program(modules / "@anthropic-ai/claude-code/cli-wrapper.cjs", b"#!/usr/bin/env node\n")
        return launcher, program(modules / f"@anthropic-ai/claude-code-{PLATFORM}/claude")
    launcher = program(modules / "@openai/codex/bin/codex.js", b"#!/usr/bin/env node\n")
    return launcher, program(modules / f"@openai/codex-{PLATFORM}/vendor/any-triple/bin/codex")


BOTH = pytest.mark.parametrize("client", ["claude", "codex"])


@BOTH
def test_a_native_program_is_itself(client: CliName, tmp_path: Path) -> None:
    """By any link that leads to it."""
    native = program(tmp_path / "versions/1.2.3")
    link = tmp_path / client
    link.symlink_to(native)
    assert native_of(client, link) == native


@BOTH
def test_a_link_of_npm_leads_to_the_native_program(client: CliName, tmp_path: Path) -> None:
    """Past the launcher, which needs Node."""
    launcher, native = installed(tmp_path, client)
    link = tmp_path / "bin" / client
    link.parent.mkdir()
    link.symlink_to(launcher)
    assert native_of(client, link) == native


@BOTH
def test_a_package_within_the_package_is_found(client: CliName, tmp_path: Path) -> None:
    """Where npm does not lift what a package needs."""
    launcher, native = installed(tmp_path, client)
    scope = native.relative_to(tmp_path / "node_modules").parts[0]
    package = next(above for above in launcher.parents if above.parent.name == scope)
    (package / "node_modules").mkdir()
    inner = package / "node_modules" / scope
    inner.mkdir()
    moved = inner / native.relative_to(tmp_path / "node_modules" / scope).parts[0]
    (tmp_path / "node_modules" / scope / moved.name).rename(moved)
    found = native_of(client, launcher)
    assert found is not None
    assert found.is_relative_to(moved)


@BOTH
def test_a_shell_script_of_pnpm_leads_to_the_native_program(client: CliName, tmp_path: Path) -> None:
    """It names the launcher, below its own directory."""
    launcher, native = installed(tmp_path / "global", client)
    below = launcher.relative_to(tmp_path)
    script = f'#!/bin/sh\nbasedir=$(dirname "$0")\nexec node  "$basedir/../{below}" "$@"\n'
    shim = program(tmp_path / "bin" / client, script.encode())
    assert native_of(client, shim) == native


@pytest.mark.parametrize(
    "head",
    [b"", b"#!/usr/bin/env node\n", b'#!/bin/sh\nexec "$basedir/../../../../etc/passwd.js"\n', b"\x7fEL"],
)
def test_what_leads_to_no_native_program_is_none(tmp_path: Path, head: bytes) -> None:
    """An old build in JavaScript, somebody's wrapper, an empty file."""
    assert native_of("claude", program(tmp_path / "claude", head)) is None


def test_what_is_no_file_is_none(tmp_path: Path) -> None:
    """A directory, a link to nowhere, a pipe, which would not be waited for."""
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert [native_of("claude", tmp_path / name) for name in ("", "link", "pipe", "absent")] == [None] * 4


def test_nothing_of_the_workspace_is_taken(tmp_path: Path) -> None:
    """Whatever PATH says: an agent may have put it there. A link outside that leads there is no better."""
    program(tmp_path / "work/.venv/bin/claude")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/claude").symlink_to(tmp_path / "work/.venv/bin/claude")
    search_path = f"{tmp_path}/work/.venv/bin:{tmp_path}/bin:work/.venv/bin"
    found = native_programs(
        "claude", search_path=search_path, home=tmp_path / "home", workspace=tmp_path / "work"
    )
    assert [path for path in found if path.is_relative_to(tmp_path)] == []


def test_path_comes_before_the_usual_places(tmp_path: Path) -> None:
    """And what is in neither is found last, by the places where installers put it."""
    home = tmp_path / "home"
    places = [tmp_path / "bin/codex", home / ".local/bin/codex", home / ".nvm/versions/node/v20/bin/codex"]
    for path in places:
        program(path)
    found = native_programs("codex", search_path=str(tmp_path / "bin"), home=home, workspace=None)
    assert [path for path in found if path.is_relative_to(tmp_path)] == places


def test_a_package_without_its_program_is_none(tmp_path: Path) -> None:
    """As npm leaves it where optional packages were left out."""
    launcher, native = installed(tmp_path, "claude")
    native.unlink()
    assert native_of("claude", launcher) is None
