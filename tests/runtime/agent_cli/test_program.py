"""A client's program is shown inside in a version that was tried, or the user is told what to do."""

import re
import shutil
from pathlib import Path

import pytest

from ringfence.errors import ConfigurationError
from ringfence.runtime.agent_cli.program import (
    check_version,
    find_program,
    read_version,
    shown_plugins,
    version_of,
)
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.runtime.codex.cli import CodexCli
from ringfence.runtime.options import Options
from ringfence.sandbox import SandboxSpec

BASH = Path("/bin/bash").resolve()
IS_CODEX_OF_THE_SYSTEM = any(Path(folder, "codex").exists() for folder in ("/usr/bin", "/usr/local/bin"))
INSIDE = SandboxSpec(backend="bubblewrap")
IN_IMAGE = SandboxSpec(backend="docker", image="example.com/some/image:1")


class Shell(ClaudeCli):
    """A client that every machine has, in any version."""

    tested = ("0.0.1", "999.0")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/nowhere")


def let_all_write(path: Path) -> None:
    """As somebody careless does."""
    path.chmod(0o757)


async def test_a_program_that_is_named_is_shown_at_a_place_of_ours() -> None:
    """Read-only, in the version that it says."""
    program = await find_program(Shell(), INSIDE, Options(cli_path=BASH))
    (mount,) = program.mounts
    assert (mount.source, mount.target, mount.read_only) == (BASH, program.path, True)
    assert program.path.startswith("/ringfence/")
    assert program.version is not None
    assert program.version.count(".") >= 1


async def test_without_a_fence_it_is_where_it_is() -> None:
    """There is nothing to show it in."""
    program = await find_program(Shell(), SandboxSpec(backend="host"), Options(cli_path=BASH))
    assert (program.path, program.mounts) == (str(BASH), ())


async def test_a_program_that_tells_its_version_has_no_home(tmp_path: Path) -> None:
    """One that was made for it would be left where ringfence is killed meanwhile."""
    program = tmp_path / "client"
    homes = '"$HOME" "$CLAUDE_CONFIG_DIR" "$CODEX_HOME"'
    program.write_text(f'#!/bin/sh\nfor home in {homes}; do mkdir -p "$home" && exit 1; done\necho 2.1.329\n')
    program.chmod(0o755)
    assert await version_of(program) == "2.1.329"


@pytest.mark.parametrize("version", ["2.1.196", "2.2", "1.9.400", "3"])
def test_another_version_is_refused_with_what_to_do(version: str) -> None:
    """Named with the range that was tried; `--force` tries it."""
    oldest, newest = map(re.escape, ClaudeCli.tested)
    with pytest.raises(
        ConfigurationError, match=rf"{version} .*{oldest} to {newest}.*--force.*npm install"
    ) as caught:
        check_version(ClaudeCli(), version, path="/opt/claude", force=False)
    assert ("\n" in str(caught.value), "'/opt/claude'" in str(caught.value)) == (False, True)
    check_version(ClaudeCli(), version, path="/opt/claude", force=True)


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.1.329 (Claude Code)\n", "2.1.329"), ("codex-cli 0.169.0\n", "0.169.0"), ("", None), ("x", None)],
)
def test_versions_are_read_as_the_clients_print_them(text: str, version: str | None) -> None:
    """Of both."""
    assert read_version(text) == version


async def test_a_missing_program_is_told_with_how_to_install_it() -> None:
    """In a line."""
    if IS_CODEX_OF_THE_SYSTEM:
        pytest.skip("codex is among this machine's own programs")
    with pytest.raises(ConfigurationError, match=r"Codex is not installed.*npm install -g @openai/codex"):
        await find_program(CodexCli(), INSIDE, Options())


async def test_a_path_that_leads_to_no_program_is_told(tmp_path: Path) -> None:
    """With the path."""
    with pytest.raises(ConfigurationError, match=r"'/absent/claude' of Claude Code .*is not there"):
        await find_program(ClaudeCli(), INSIDE, Options(cli_path=Path("/absent/claude")))


async def test_a_program_of_an_image_is_asked_inside() -> None:
    """By the name that is given, which need not be on this host."""
    program = await find_program(ClaudeCli(), IN_IMAGE, Options(cli_path=Path("/absent/claude")))
    assert (program.path, program.version, program.mounts) == ("/absent/claude", None, ())


async def test_the_image_of_agents_has_its_own() -> None:
    """Even if the host has one, too."""
    spec = SandboxSpec(backend="docker", image="localhost/ringfence/agents:1")
    program = await find_program(ClaudeCli(), spec, Options())
    assert (program.path, program.version, program.mounts) == ("claude", None, ())


async def test_a_program_that_others_can_change_is_not_started_on_the_host(tmp_path: Path) -> None:
    """It is asked inside, where it can do no harm."""
    bash = Path(shutil.copy(BASH, tmp_path))
    let_all_write(bash)
    program = await find_program(Shell(), INSIDE, Options(cli_path=bash))
    assert (program.version, len(program.mounts)) == (None, 1)


def test_plugins_are_shown_at_places_of_ours(tmp_path: Path) -> None:
    """Two of the same name beside each other; without a fence they are where they are."""
    plugins = (tmp_path / "a/garden", tmp_path / "b/garden")
    for plugin in plugins:
        plugin.mkdir(parents=True)
    mounts, options = shown_plugins(Options(plugins=plugins), INSIDE)
    assert [mount.source for mount in mounts] == list(plugins)
    assert [str(path) for path in options.plugins] == [mount.target for mount in mounts]
    assert len({mount.target for mount in mounts}) == 2
    assert shown_plugins(Options(plugins=plugins), SandboxSpec(backend="host")) == (
        (),
        Options(plugins=plugins),
    )


def test_a_plugin_that_is_not_there_is_named_with_its_option(tmp_path: Path) -> None:
    """Before a run is begun."""
    with pytest.raises(
        ConfigurationError, match=r"nowhere' \(--plugin, client\.plugins\) is not a directory"
    ):
        shown_plugins(Options(plugins=(tmp_path / "nowhere",)), INSIDE)


async def test_a_program_in_the_workspace_is_never_started_outside(tmp_path: Path) -> None:
    """Not even the one that is named, nor by a link: an agent may have written it; it is asked inside."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    own = Path(shutil.copy(BASH, workspace / "claude"))
    link = tmp_path / "claude"
    link.symlink_to(own)
    for path in (own, link):
        spec = SandboxSpec(backend="bubblewrap", workspace=workspace)
        program = await find_program(Shell(), spec, Options(cli_path=path))
        assert program.version is None
