"""What a run changes, where, and how it is taken in and out again."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.journal import run_dirs, runs_dir

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


def give(place: Path, uid: int = 12_345) -> None:
    """Let somebody who is not root own what is in a directory, where root runs the tests."""
    for path in place.iterdir() if os.getuid() == 0 else ():
        os.chown(path, uid, uid, follow_symlinks=False)


@pytest.fixture
def run(ringfence: Cli, workspace: Path, script: Cli, says: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Let an agent carry out one command in the workspace, which is the current directory."""
    monkeypatch.chdir(workspace)

    def go(command: str, *options: str) -> Any:
        model = script(says("x", command), says())
        check = () if "--verify" in options else ("--no-verify",)
        return ringfence("run", "x", "-C", workspace, "--model", model, *check, *options)

    return go


def test_undo_leaves_what_git_ignores(run: Cli, ringfence: Cli, workspace: Path):
    """Files of the user's that only `.git/info/exclude` names are neither told as changes nor deleted."""
    (workspace / ".git" / "info" / "exclude").write_text("notes.txt\n")
    (workspace / "notes.txt").write_text("MINE")
    run("touch made", "--mode", "bind")
    assert "notes.txt" not in ringfence("diff", "last", "--stat").out
    ringfence("undo", "last")
    assert ((workspace / "made").exists(), (workspace / "notes.txt").read_text()) == (False, "MINE")


def until_ready(workspace: Path, process: Any) -> None:
    """Wait until what runs inside has made a file; a fifo from outside would be covered."""
    deadline = time.monotonic() + 60
    while not (workspace / "ready").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


CHECK = "echo 'echo evil' > .envrc; echo two > app.py"


def test_what_the_check_writes_is_the_runs(run: Cli, ringfence: Cli, workspace: Path, events: Cli):
    """In the workspace itself it is told, with what the host would run, and undone."""
    ended = run("echo made > made; true", "--mode", "bind", "--verify", CHECK)
    exported = [event["data"] for event in events() if event["event"] == "work.exported"]
    kept = [event["data"]["when"] for event in events() if event["event"] == "checkpoint.created"]
    assert kept == ["before", "after", "checked"]
    assert [each["runs_on_your_machine"] for each in exported] == [[], [".envrc"]]
    assert any("the check changed" in note and "'.envrc', 'app.py'" in note for note in exported[1]["notes"])
    assert ("3 files changed" in ended.err, "evil" in ringfence("diff", "last").out) == (True, True)
    ringfence("undo", "last")
    assert sorted(path.name for path in workspace.iterdir()) == [".git", "app.py"]
    assert (workspace / "app.py").read_text() == "print('one')\n"


def test_what_a_cancelled_check_writes_is_the_runs(
    start: Cli, ringfence: Cli, workspace: Path, script: Cli, says: Cli
):
    """An interrupt stops the check; what it wrote until then is undone with the rest."""
    give(workspace)
    check = f"{CHECK}; touch ready; sleep 1000"
    process = start(
        "run", "x", "-C", workspace, "--model", script(says()), "--mode", "bind", "--verify", check
    )
    until_ready(workspace, process)  # the check has written
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, b"use it: .envrc" in err) == (130, True)
    (run,) = runs_dir().iterdir()
    assert ringfence("undo", run.name).code == 0
    assert not (workspace / ".envrc").exists()


def test_what_a_red_check_writes_is_the_runs(run: Cli, ringfence: Cli, workspace: Path):
    """Its verdict does not matter."""
    ended = run("touch made", "--mode", "bind", "--verify", f"{CHECK}; exit 3")
    assert (ended.code, ".envrc" in ended.err) == (3, True)
    ringfence("undo", "last")
    assert not (workspace / ".envrc").exists()


def test_a_check_that_changes_nothing_is_not_told_again(run: Cli, events: Cli):
    """One export, one state after the run."""
    run("touch made", "--mode", "bind", "--verify", "true")
    assert [event["event"] for event in events()].count("work.exported") == 1


def test_what_the_check_writes_in_a_clone_stays_there(run: Cli, ringfence: Cli, workspace: Path):
    """It is no part of the work."""
    run("touch made", "--mode", "clone", "--verify", CHECK)
    ringfence("apply", "last")
    assert ((workspace / "made").exists(), (workspace / ".envrc").exists()) == (True, False)


def test_a_protected_path_that_appears_is_named(run: Cli, monkeypatch: pytest.MonkeyPatch):
    """What cannot be mounted on is reported."""
    monkeypatch.setenv("RINGFENCE_SANDBOX__PROTECT", '["*.lock"]')
    ended = run("touch new.lock", "--mode", "bind")
    assert "is protected; look before you use it: new.lock" in ended.err


def test_thousands_of_files_do_not_bury_one(run: Cli, ringfence: Cli):
    """They are told by directory, each reason first; one command names all of them."""
    many = "seq 1500 | xargs mkdir; seq -f %g/.envrc 1500 | xargs touch"
    ended = run(f"{many}; mkdir -p z/.vscode; touch z/.vscode/x z/.vscode/y", "--mode", "bind")
    told = ended.err[ended.err.index("RUNS ON") :]
    assert (told.count("RUNS ON"), "z/.vscode/ (2 files)" in told) == (21, True)
    assert "1,481 more files in 1,481 more places" in told
    flagged = ringfence("diff", *told.partition("ringfence diff ")[2].split()[:2])
    assert (flagged.out.count("direnv runs it"), flagged.out.count("VS Code runs")) == (1500, 2)


def test_a_file_that_undo_cannot_give_back_is_named(run: Cli, ringfence: Cli, workspace: Path):
    """One too large to be kept, cut short by the run, is left, and not passed over in silence."""
    with (workspace / "big").open("wb") as file:
        file.truncate(101 * 1024**2)
    give(workspace)
    run("echo short > big", "--mode", "bind")
    ended = ringfence("undo")
    assert (ended.err.count("NOT undone: 'big'"), "nothing to undo" in ended.err) == (1, False)


def test_a_diff_shows_one_thing(ringfence: Cli):
    """Options that exclude each other are refused."""
    assert ringfence("diff", "--stat", "--raw").code == 2


def test_too_many_protected_paths_are_refused(run: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """Mounts are bounded; whole directories are advised."""
    for number in range(501):
        (workspace / f"{number}.dat").write_text("")
    monkeypatch.setenv("RINGFENCE_SANDBOX__PROTECT", '["*.dat"]')
    assert run("true", "--mode", "bind").code == 4


def test_the_host_is_loud_and_works_on_the_workspace_itself(
    run: Cli, ringfence: Cli, workspace: Path, events: Cli
):
    """No fence: it says so, journals it, and still shows and undoes what was changed."""
    ended = run("echo two > app.py", "--sandbox", "host")
    loosened = [event["data"] for event in events() if event["event"] == "policy.loosened"]
    assert ("WARNING" in ended.err, "NO FENCE" in ended.err, "1 file changed" in ended.err) == (
        True,
        True,
        True,
    )
    assert loosened == [
        {"what": "commands run on this machine without a sandbox (backend 'host')", "by": "--sandbox"}
    ]
    ringfence("undo", "last")
    assert (workspace / "app.py").read_text() == "print('one')\n"


@pytest.mark.parametrize(
    "options", [["--mode", "clone"], ["--mode", "read_only"], ["--memory", "1g"]], ids=" ".join
)
def test_the_host_refuses_what_it_cannot_keep(run: Cli, workspace: Path, options: list[str]):
    """Nothing is promised that nobody enforces."""
    ended = run("touch made", "--sandbox", "host", *options)
    assert (ended.code, (workspace / "made").exists()) == (4, False)


def test_last_is_the_newest_run_here(
    run: Cli, ringfence: Cli, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Not one on another workspace, and not one that was refused before it had a sandbox, which has an id."""
    run("touch made", "--mode", "bind")
    name = run_dirs()[0].name
    refused = run("true", "--sandbox", "host", "--mode", "clone")
    refused_name = run_dirs()[0].name
    elsewhere = run("true", "-C", tmp_path, "--mode", "clone")
    assert (refused.code, elsewhere.code, refused_name != name) == (4, 0, True)
    (workspace / "below").mkdir()
    monkeypatch.chdir(workspace / "below")
    for words in (("diff", "--stat"), ("runs", "show"), ("runs", "verify")):
        ended = ringfence(*words)
        assert (ended.code, name in ended.out + ended.err) == (0, True)
    assert "state:      refused" in ringfence("runs", "show", refused_name).out


def test_a_workspace_on_which_no_run_had_a_sandbox(run: Cli, ringfence: Cli):
    """The command that shows the newest one is named."""
    run("true", "--sandbox", "host", "--mode", "clone")
    ended = ringfence("diff")
    assert (ended.code, f"`ringfence runs show {run_dirs()[0].name[-8:]}`" in ended.err) == (2, True)


def test_a_run_that_changed_nothing_names_pending_changes_only(run: Cli, ringfence: Cli):
    """`undo` names the newest run whose changes are in the workspace, `apply` one whose changes are not."""
    names = []
    for command, mode in (("touch copied", "clone"), ("touch made", "bind"), ("true", "bind")):
        run(command, "--mode", mode)
        names.append(run_dirs()[0].name)
    copied, made, _ = names
    assert f"`ringfence undo {made[-8:]}`" in ringfence("undo").err
    assert f"`ringfence apply {copied[-8:]}`" in ringfence("apply").err
    assert (ringfence("undo", made).code, ringfence("apply", copied).code) == (0, 0)
    assert f"`ringfence undo {copied[-8:]}`" in ringfence("undo").err
    assert f"`ringfence apply {made[-8:]}`" in ringfence("apply").err
    assert ringfence("apply", made).code == 0
    assert "no other run on its workspace has changes to apply" in ringfence("apply").err


@pytest.mark.parametrize("command", ["diff", "undo", "apply"])
def test_last_is_nothing_where_nothing_was_run(
    run: Cli, ringfence: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
):
    """Another workspace's run is never taken for it."""
    run("touch made")
    monkeypatch.chdir(tmp_path)
    ended = ringfence(command, "last")
    assert (ended.code, "ringfence runs ls" in ended.err) == (2, True)


@pytest.mark.parametrize("mode", ["clone", "bind"])
def test_a_private_copy_is_told_with_what_brings_it_in(run: Cli, mode: str):
    """The last line of a run that changed something; where the files were changed themselves, nothing."""
    last = run("touch made", "--mode", mode).err.splitlines()[-1]
    (path,) = runs_dir().iterdir()
    hint = f"the changes are in a private copy; apply them with `ringfence apply {path.name[-8:]}`"
    assert (last == hint) is (mode == "clone")


def test_a_command_on_a_private_copy_tells_what_brings_it_in(start: Cli, workspace: Path):
    """Also `exec`; not where nothing was changed."""
    told = []
    for command in (("touch", "made"), ("true",)):
        process = start("exec", "-C", workspace, "--mode", "clone", "--", *command)
        told.append(b"ringfence apply" in process.communicate(timeout=60)[1])
    assert told == [True, False]


def test_changes_of_a_broken_record_are_not_applied(run: Cli, ringfence: Cli, workspace: Path):
    """`apply` refuses a run whose record was changed after its seal, and changes no file."""
    run("echo honest > made", "--mode", "clone")
    (path,) = run_dirs()
    work = path / "work.json"
    work.write_text(work.read_text().replace('"clone"', '"clone" ', 1))
    refused = ringfence("apply", "last")
    assert (refused.code, (workspace / "made").exists()) == (1, False)
    assert "nothing was applied" in refused.err
    assert "broken" in refused.err


def test_undo_of_a_private_copy_names_apply(run: Cli, ringfence: Cli):
    """It was never brought in."""
    run("touch made", "--mode", "clone")
    ended = ringfence("undo")
    assert (ended.code, "ringfence apply" in ended.err) == (1, True)


def test_a_diff_says_that_it_was_undone(run: Cli, ringfence: Cli):
    """Until it is brought in again."""
    run("touch made", "--mode", "bind")
    told = ["undone since" in ringfence("diff").err]
    for command in ("undo", "apply"):
        ringfence(command)
        told.append("undone since" in ringfence("diff").err)
    assert told == [False, True, False]


def test_nothing_to_undo(run: Cli, ringfence: Cli):
    """Where no run changed anything, `undo` says so, fails and writes nothing."""
    run("true")
    ended = ringfence("undo")
    assert (ended.code, "nothing to undo" in ended.err) == (1, True)


def test_what_is_weak_is_told_once(run: Cli):
    """Not for each sandbox of the run."""
    ended = run("true", "--verify", "true", "--sandbox", "host")
    assert (ended.err.count("without a sandbox"), ended.err.count("not enforced by the kernel")) == (1, 1)
    assert "weaker than the default" not in ended.err


def test_a_check_that_is_not_there_is_told(run: Cli):
    """The state is that of a check which failed."""
    ended = run("true", "--verify", "no-such-check")
    assert (ended.code, "could not run in the sandbox: command not found" in ended.err) == (3, True)


def test_gc_removes_runs_and_clones(run: Cli, ringfence: Cli):
    """Also where an agent took the rights to its directories away."""
    run("mkdir -p a/b && touch a/b/c && chmod 0 a/b a", "--mode", "clone")
    assert ringfence("gc", "--older-than", "1ms", "--keep", "0").code == 0
    assert "no runs" in ringfence("runs", "ls").err


def test_gc_removes_what_is_nested_without_end(run: Cli, ringfence: Cli):
    """An agent made directories in directories, thousands deep."""
    deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    run(f'python3 -c "{deep}"', "--mode", "clone")
    assert ringfence("gc", "--older-than", "1ms", "--keep", "0").code == 0
    assert list(runs_dir().iterdir()) == []


def test_gc_removes_what_a_killed_verification_left(ringfence: Cli):
    """Its replica is removed, but not the replica of a verification that may still be running."""
    for name, age_s in (("replica-old", 2 * 86_400), ("replica-new", 0)):
        left = make_private_dir(state_dir() / "tmp" / name)
        os.utime(left, (time.time() - age_s,) * 2)
    ringfence("gc")
    assert [path.name for path in (state_dir() / "tmp").iterdir()] == ["replica-new"]


def test_a_directory_its_owner_cannot_reach(
    ringfence: Cli, place: Path, workspace: Path, script: Cli, says: Cli
):
    """Root is told why a user's workspace in a private directory does not do."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    place.parent.chmod(0o700)
    ended = ringfence("run", "x", "-C", workspace, "--model", script(says()))
    place.parent.chmod(0o711)
    assert (ended.code, "cannot be reached by its owner" in ended.err) == (1, True)


def test_a_workspace_that_vanishes_is_told(
    run: Cli, ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch
):
    """Undo has nowhere to go."""
    run("touch made", "--mode", "bind")
    monkeypatch.chdir("/")
    shutil.rmtree(workspace)
    ended = ringfence("undo", run_dirs()[0].name)
    workspace.mkdir()
    assert (ended.code != 0, "internal error" in ended.err, ended.err.count("\n")) == (True, False, 2)
