"""A git configuration that leads into the workspace has no effect, and the files that it leads to are protected."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.cases import slow_after
from tests.sandbox.workspace.runs import prepare

from ringfence.errors import InfrastructureFault, PolicyRefused
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.workspace.git import config as user_settings
from ringfence.sandbox.workspace.git.config import UserSettings, read_settings
from ringfence.sandbox.workspace.git.layout import find_git
from ringfence.sandbox.workspace.record import open_store, patch_run, undo_run
from ringfence.sandbox.workspace.run import RunWorkspace
from ringfence.sandbox.workspace.run_as import Actor

pytestmark = pytest.mark.anyio


@pytest.fixture
def home(ground: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home, without git settings."""
    path = ground / "home"
    path.mkdir()
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.delenv("GIT_CONFIG_NOSYSTEM", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME")
    return path


async def settings_of(repository: Path) -> UserSettings:
    """The settings that are read, within a time limit."""
    with anyio.fail_after(5):
        return await read_settings(Actor.current(), repository, find_git(repository))


async def test_own_settings_are_read(repository: Path, home: Path, ground: Path):
    """Name, address and ignore file are read from the user's files and those that they include; the last one wins."""
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "config").write_text("[user]\n\tname = First\n\temail = a@b\n")
    (home / ".gitconfig").write_text("[include]\n\tpath = more\n[core]\n\texcludesFile = ~/ignore\n")
    (home / "more").write_text("[user]\n\tname = Second\n")
    (home / "ignore").write_text("*.mine\n")
    found = await settings_of(repository)
    assert (found.identity.name, found.identity.email, found.excludes) == ("Second", "a@b", b"*.mine\n")
    assert found.obeyed == ()


def link(home: Path, repository: Path) -> None:
    """Make the settings a link to a file in the workspace."""
    (home / ".gitconfig").symlink_to(repository / "evil")


def include(home: Path, repository: Path) -> None:
    """Make the settings include a file in the workspace."""
    (home / ".gitconfig").write_text(f"[include]\n\tpath = {repository / 'evil'}\n")


def through_a_link(home: Path, repository: Path) -> None:
    """Make the settings include a link to a file in the workspace."""
    (home / "linked").symlink_to(repository / "evil")
    (home / ".gitconfig").write_text("[include]\n\tpath = linked\n")


@pytest.mark.parametrize("lead", [link, include, through_a_link])
@pytest.mark.parametrize("kind", ["file", "fifo"])
async def test_settings_in_the_workspace(lead: Callable[[Path, Path], None], kind: str, repository, home):
    """A settings file in the workspace has no effect, does not block the read, and is reported."""
    if kind == "fifo":
        os.mkfifo(repository / "evil")
    else:
        (repository / "evil").write_text("[user]\n\tname = Evil\n[core]\n\texcludesFile = /etc/passwd\n")
    lead(home, repository)
    found = await settings_of(repository)
    assert (found.identity.name, found.excludes, found.obeyed) == ("agent", b"", ("evil",))


async def test_ignore_file_in_the_workspace(repository: Path, home: Path):
    """A user's ignore file in the workspace, which an agent can write, has no effect, and is reported."""
    (repository / "ignore").write_text("*\n")
    (home / ".gitconfig").write_text(f"[core]\n\texcludesFile = {repository / 'ignore'}\n")
    found = await settings_of(repository)
    assert (found.excludes, found.obeyed) == (b"", ("ignore",))


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("[core]\n\thooksPath = {w}/tools/hooks", "tools/hooks"),
        ("[core]\n\thooksPath = tools/hooks", "tools/hooks"),
        ("[core]\n\tfsmonitor = {w}/watch", "watch"),
        ('[filter "x"]\n\tclean = {w}/filter --clean %f', "filter"),
        ("[alias]\n\tgo = !{w}/go fast", "go"),
        ("[include]\n\tpath = ../gitconfig", "gitconfig"),
        ('[includeIf "gitdir:/"]\n\tpath = ../gitconfig', "gitconfig"),
    ],
)
async def test_files_that_the_repository_settings_name(line: str, path: str, repository: Path, home: Path):
    """Programs and files in the workspace that settings of the repository name are found."""
    with (repository / ".git" / "config").open("a") as file:
        file.write(line.format(w=repository) + "\n")
    assert (await settings_of(repository)).obeyed == (path,)


@pytest.mark.parametrize(
    "value",
    [
        "./tools/h",
        "sh tools/h",
        "!tools/h",
        "env A=1 ./tools/h",
        '"{w}/tools/h" x',
        "python3 {w}/tools/h",
        "sh -c 'exec tools/h'",
        '"$(git rev-parse --show-toplevel)/tools/h"',
        "run --with=tools/h",
    ],
)
@pytest.mark.parametrize(
    "key", slow_after(1, ["filter.x.clean", "gpg.ssh.defaultKeyCommand", "sendemail.toCmd"])
)
async def test_any_word_of_a_command(key: str, value: str, repository: Path, home: Path, git):
    """A program is found in any word of a command, relative to the top of the work tree, where git runs it."""
    (repository / "tools").mkdir()
    (repository / "tools" / "h").touch()
    git(repository, "config", key, value.format(w=repository))
    assert (await settings_of(repository)).obeyed == ("tools/h",)


async def test_words_that_are_no_files(repository: Path, home: Path, git):
    """A subcommand with the name of a directory does not count; a program that does not exist yet is only watched."""
    (repository / "clean").mkdir()
    git(repository, "config", "filter.lfs.clean", "git-lfs clean -- %f")
    git(repository, "config", "filter.x.clean", "python3 later.py")
    git(repository, "config", "alias.d", "diff -- sub/b.txt")
    found = await settings_of(repository)
    assert (found.obeyed, found.obeyed_if_created) == ((), ("later.py",))


@pytest.mark.parametrize(
    "how", ["global includeIf", "included outside", "included in .git", "config.worktree", "system"]
)
async def test_hooks_path_however_it_is_set(how: str, repository: Path, home: Path, git, monkeypatch):
    """Each file that git reads for a repository is read, whatever the condition of its inclusion."""
    outside = home / "work"
    outside.write_text("[core]\n\thooksPath = ci\n[user]\n\tname = Conditional\n")
    if how == "global includeIf":
        (home / ".gitconfig").write_text('[includeIf "onbranch:x"]\n\tpath = work\n')
    elif how == "included outside":
        git(repository, "config", "include.path", str(outside))
    elif how == "included in .git":
        outside.rename(repository / ".git" / "team")
        git(repository, "config", "include.path", "team")
    elif how == "config.worktree":
        outside.rename(repository / ".git" / "config.worktree")
    else:
        monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(outside))
    found = await settings_of(repository)
    assert found.obeyed == ("ci",)
    is_sure = how in ("system", "included outside", "included in .git")
    assert found.identity.name == ("Conditional" if is_sure else "agent")


async def test_includes_without_end(repository: Path, home: Path):
    """Files that include each other are read once; more files than the limit are refused."""
    (home / ".gitconfig").write_text("[include]\n\tpath = .gitconfig\n")
    assert (await settings_of(repository)).obeyed == ()
    (home / ".gitconfig").write_text("".join(f"[include]\n\tpath = {i}\n" for i in range(201)))
    with pytest.raises(PolicyRefused, match="more than 200 files"):
        await settings_of(repository)


async def test_too_many_settings_are_refused(repository: Path, home: Path):
    """A small file that is included under many names is refused, without much time or memory."""
    (repository / ".git" / "many").write_text("[alias]\n" + "a\n" * 100_000)
    for number in range(20):
        (repository / ".git" / f"l{number}").symlink_to("many")
    with (repository / ".git" / "config").open("a") as file:
        file.write("".join(f"[include]\n\tpath = l{number}\n" for number in range(20)))
    with pytest.raises(PolicyRefused, match="more than"):
        await settings_of(repository)


async def test_a_long_configuration_is_read_or_refused(repository: Path, home: Path):
    """A long configuration is read to its end or refused; settings that do not matter do not count."""
    hooks = "[core]\n\thooksPath = tools\n"
    (home / ".gitconfig").write_text(
        "".join(f'[branch "{i}"]\n\tmerge = {i}\n' for i in range(20_000)) + hooks
    )
    assert (await settings_of(repository)).obeyed == ("tools",)
    (home / ".gitconfig").write_text("".join(f'[a "{i}"]\n\tv = {i:x>1000}\n' for i in range(1100)) + hooks)
    with pytest.raises(PolicyRefused, match="more than 1 MiB"):
        await settings_of(repository)


async def test_an_endless_configuration_is_an_error(
    repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    """A configuration that git cannot read in time raises an error, instead of hiding the settings behind it."""
    monkeypatch.setattr(user_settings, "_TIMEOUT_S", 0.3)
    with (home / "endless").open("w") as file:
        file.write("#")
        file.truncate(1024**4)
    (home / ".gitconfig").write_text("[include]\n\tpath = endless\n")
    with pytest.raises(InfrastructureFault, match="git did not say"):
        await settings_of(repository)


async def test_a_link_on_the_way_to_a_program(repository: Path, home: Path):
    """A link in the workspace on the way to a program elsewhere is found, too."""
    (repository / "current").symlink_to("/bin")
    (home / ".gitconfig").write_text(f"[core]\n\teditor = {repository}/current/sh\n")
    assert (await settings_of(repository)).obeyed == ("current", "current/sh")


async def test_hooks_that_are_links(repository: Path, home: Path):
    """A program in the workspace that a hook links to is found."""
    (repository / ".git" / "hooks").mkdir(exist_ok=True)
    (repository / ".git" / "hooks" / "pre-commit").symlink_to("../../tools/check")
    assert (await settings_of(repository)).obeyed == ("tools/check",)


async def test_settings_that_name_no_program(repository: Path, home: Path):
    """Settings that name the workspace but run or follow nothing in it are ignored."""
    (home / ".gitconfig").write_text(
        f'[safe]\n\tdirectory = {repository}\n[remote "x"]\n\turl = {repository}/sub\n'
    )
    assert (await settings_of(repository)).obeyed == ()


async def begin(repository: Path, state: Path, own) -> RunWorkspace:
    """Prepare a run on the workspace itself."""
    if os.geteuid() == 0:
        own(repository)
    return await prepare(repository, "bind", run="run-1", run_dir=state / "runs" / "run-1", state=state)


@pytest.mark.slow
async def test_hooks_in_the_workspace_are_read_only(repository: Path, state: Path, own):
    """Hooks in the workspace that the user's git runs cannot be written; a program that appears is reported."""
    (repository / "tools" / "hooks").mkdir(parents=True)
    (repository / "tools" / "hooks" / "pre-commit").write_text("user")
    with (repository / ".git" / "config").open("a") as file:
        file.write(f"[core]\n\thooksPath = tools/hooks\n\tfsmonitor = {repository}/later\n")
    prepared = await begin(repository, state, own)
    spec = SandboxSpec(backend="bubblewrap", workspace=repository)
    async with Sandbox.start(spec, placement=prepared.placement) as sandbox:
        script = "echo evil > tools/hooks/pre-commit; rm -rf tools/hooks; mv tools away; echo x > later"
        await sandbox.run(["sh", "-c", script], timeout_s=30)
    done = await prepared.deliver(None)
    assert (repository / "tools" / "hooks" / "pre-commit").read_text() == "user"
    assert done.runs_on_your_machine == ("later",)
    assert any("'tools/hooks'" in note for note in prepared.notes)


@pytest.mark.parametrize("how", slow_after(1, ["home", "environment"]))
async def test_a_run_starts_no_program_of_the_workspace(
    how: str, repository, state, home, canary, own, monkeypatch
):
    """No setting or variable of the user's makes git on the host run a program in the workspace."""
    script = repository / "evil.sh"
    script.write_text(f"#!/bin/sh\n{canary()}\n")
    script.chmod(0o755)
    for name in ("post-index-change", "reference-transaction", "post-checkout"):
        (repository / name).symlink_to("evil.sh")
    if how == "home":
        (home / ".gitconfig").write_text(
            f"[core]\n\thooksPath = {repository}\n\tfsmonitor = {script}\n\tpager = {script}\n"
            f"\talternateRefsCommand = {script}\n[diff]\n\texternal = {script}\n"
        )
    else:
        for key, value in (("COUNT", "1"), ("KEY_0", "core.fsmonitor"), ("VALUE_0", str(script))):
            monkeypatch.setenv(f"GIT_CONFIG_{key}", value)
        for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_INDEX_FILE"):
            monkeypatch.setenv(name, str(script))
    prepared = await begin(repository, state, own)
    (repository / "a.txt").write_text("agent\n")
    done = await prepared.deliver(None)
    assert b"+agent" in await patch_run(done.record, open_store(done.record, state))
    await undo_run(done.record, state)
    assert (repository / "a.txt").read_text() == "one\n"
