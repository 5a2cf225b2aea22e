"""`ringfence sandbox`: made once, used by many commands, removed."""

import fcntl
import json
import os
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_shell import Terminal

from ringfence.sandbox.holder.place import places_in, standing_dir

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


@pytest.fixture
def box(start: Cli, workspace: Path) -> Iterator[Cli]:
    """Runs `ringfence sandbox ...`: its exit code, stdout and stderr. A sandbox `box` stands already."""

    def run(*words: str | Path, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        process = start("sandbox", *words, stdin=subprocess.PIPE)
        out, err = process.communicate(stdin, timeout=60)
        return process.returncode, out, err

    assert run("create", "box", "-C", workspace)[:2] == (0, b"box\n")
    yield run
    for place in places_in(standing_dir()):
        run("rm", place.name)
    assert places_in(standing_dir()) == []


@pytest.fixture
def image() -> str:
    """An image that Docker has; skips without an engine."""
    from tests.sandbox.conftest import image_for

    found = image_for("docker")
    assert found is not None
    return found


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal."""
    made = Terminal()
    yield made
    os.close(made.ours)
    os.close(made.theirs)


def test_a_clash_names_the_sandbox_and_how_it_ends(box: Cli, start: Cli, workspace: Path):
    """Who wants the same workspace knows sandboxes by name, not by the ids of runs."""
    _, _, err = box("create", "second", "-C", workspace, "--mode", "bind")
    process = start("exec", "-C", workspace, "--mode", "bind", "--", "true")
    for told in (err, process.communicate(timeout=60)[1]):
        assert (b"standing sandbox 'box'" in told, b"ringfence sandbox rm box" in told) == (True, True)


def test_one_of_another_version_can_be_removed(box: Cli):
    """What it says of itself cannot be read; that it stands, and that it can be ended, still holds."""
    state = standing_dir() / "box" / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "format": 0}))
    assert [row["state"] for row in json.loads(box("ls", "--json")[1])] == ["unknown"]
    code, _, err = box("exec", "box", "--", "true")
    assert (code, b"another version" in err) == (1, True)
    assert box("rm", "box")[:2] == (0, b"box\n")
    assert box("ls")[1] == b""


def test_options_behind_the_name_are_not_taken_for_a_program(box: Cli):
    """The command begins behind the name: an option there is refused, with where it belongs."""
    code, out, err = box("exec", "box", "--timeout", "1s", "--", "true")
    assert (code, out) == (2, b"")
    assert b"'--timeout' stands behind the name" in err


@pytest.mark.docker
def test_a_command_that_the_memory_limit_killed_is_told(box: Cli, workspace: Path, image: str):
    """A line says which limit it was, and where it is raised."""
    program = "kept = [bytearray(b'x' * (1 << 20)) for _ in range(400)]"
    options = ("--image", image, "--memory", "128m", "--mode", "clone")
    assert box("create", "small", "-C", workspace, *options)[0] == 0
    code, _, err = box("exec", "small", "--", "python3", "-c", program)
    assert code == 137
    assert b"limit on memory; raise it with --memory of `ringfence sandbox create`" in err


def test_streams_and_exit_code_pass_through(box: Cli):
    """Bytes are bytes."""
    blob = bytes(range(256)) * 4000
    told = box("exec", "-i", "box", "--", "sh", "-c", "cat; echo oops >&2; exit 7", stdin=blob)
    assert told == (7, blob, b"oops\n")


def test_a_command_that_is_not_there_exits_127(box: Cli):
    """As in a shell, and as in `ringfence exec`."""
    assert box("exec", "box", "no-such-program")[0] == 127


def test_a_time_limit_ends_the_command_alone(box: Cli):
    """124; the sandbox goes on."""
    code, _, err = box("exec", "--timeout", "300ms", "box", "sleep", "60")
    assert (code, b"--timeout" in err) == (124, True)
    assert box("exec", "box", "true")[0] == 0


def test_what_one_command_leaves_the_next_one_finds(box: Cli, workspace: Path):
    """In memory of the sandbox, and in the workspace at the same path as outside."""
    box("exec", "box", "sh", "-c", "echo kept > /tmp/kept; echo seen > seen")
    assert box("exec", "box", "sh", "-c", "cat /tmp/kept; pwd")[1].decode() == f"kept\n{workspace}\n"
    assert (workspace / "seen").read_text() == "seen\n"


def test_a_file_made_outside_is_seen_inside(box: Cli, workspace: Path):
    """At the same path."""
    (workspace / "outside").write_text("here\n")
    assert box("exec", "box", "cat", workspace / "outside")[1] == b"here\n"


def test_variables_of_one_command(box: Cli):
    """Are not those of the next."""
    assert box("exec", "-e", "A=1", "box", "sh", "-c", "echo $A")[1] == b"1\n"
    assert box("exec", "box", "sh", "-c", "echo $A")[1] == b"\n"


def test_ls_and_inspect_tell_what_there_is(box: Cli, workspace: Path):
    """By name; policy and facts as data."""
    (row,) = json.loads(box("ls", "--json")[1])
    assert (row["name"], row["backend"], row["state"]) == ("box", "bubblewrap", "running")
    assert row["workspace"] == str(workspace)
    told = json.loads(box("inspect", "box")[1])
    assert (told["policy"]["network"], told["facts"]["backend"]) == ("none", "bubblewrap")
    assert b"box" in box("ls")[1]


def test_stats_tell_what_is_used(box: Cli):
    """Of all, or of those named."""
    (row,) = json.loads(box("stats", "--json")[1])
    assert (row["name"], row["pids"] >= 1, row["memory_bytes"] > 100_000) == ("box", True, True)


def test_copies_both_ways(box: Cli, tmp_path: Path):
    """Files and directories; a link is left out and named, with exit code 1."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "file").write_text("x")
    assert box("cp", tmp_path / "tree", "box:/tmp/in")[0] == 0
    box("exec", "box", "ln", "-s", "/etc/passwd", "/tmp/in/link")
    code, _, err = box("cp", "box:/tmp/in", tmp_path / "out")
    assert (code, b"link" in err) == (1, True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]


@pytest.mark.parametrize("words", [("cp", "a", "b"), ("cp", "box:a", "box:b"), ("exec", "-t", "box", "sh")])
def test_what_makes_no_sense_is_refused(box: Cli, words: tuple[str, ...]):
    """With one line and exit code 2."""
    code, _, err = box(*words)
    assert (code, err.count(b"\n")) == (2, 1)


@pytest.mark.parametrize("verb", ["exec", "inspect", "stats", "rm"])
def test_an_unknown_name_is_told(box: Cli, verb: str):
    """And where to look."""
    code, _, err = box(verb, "nobody", *(["true"] if verb == "exec" else []))
    assert (code, b"sandbox ls" in err) == (2, True)


def test_its_whole_life_is_one_record(box: Cli, ringfence: Cli, events: Cli):
    """Made, each command, destroyed, the work; sealed, to be audited, shown and undone like a run's."""
    box("exec", "box", "sh", "-c", "echo new > new; echo told")
    code, out, err = box("rm", "box")
    assert (code, out, b"1 file changed" in err) == (0, b"box\n", True)
    names = [event["event"] for event in events()]
    assert names.index("sandbox.created") < names.index("command.ended") < names.index("sandbox.destroyed")
    assert next(one for one in events() if one["event"] == "command.ended")["data"]["stdout"] == "told\n"
    assert b"new" in ringfence("diff", "last", "--stat").out.encode()
    assert ringfence("undo", "last").code == 0


def test_a_run_on_its_workspace_is_refused_while_it_stands(box: Cli, start: Cli, workspace: Path):
    """As beside any run; after it is removed it goes."""
    words = ("exec", "-C", workspace, "--", "true")
    assert start(*words).wait(60) == 4
    box("rm", "box")
    assert start(*words).wait(60) == 0


def test_the_bare_host_is_refused(start: Cli, workspace: Path):
    """There is no fence to keep standing."""
    process = start("sandbox", "create", "h", "-C", workspace, "--sandbox", "host")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, b"no fence" in err) == (4, True)


def test_a_set_up_that_fails_leaves_no_sandbox(start: Cli, workspace: Path):
    """And says which."""
    process = start("sandbox", "create", "s", "-C", workspace, "--setup", "echo why >&2; exit 3")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, b"why" in err) == (125, True)
    assert places_in(standing_dir()) == []


def test_work_of_roots_goes_to_a_clone(start: Cli, roots: Path):
    """Nobody but root's own files: applied only when asked."""
    if os.getuid() != 0:
        pytest.skip("only root's workspaces are cloned unasked")
    assert start("sandbox", "create", "c", "-C", roots).wait(60) == 0
    assert start("sandbox", "exec", "c", "sh", "-c", "echo new > new").wait(60) == 0
    assert start("sandbox", "rm", "c").wait(60) == 0
    assert not (roots / "new").exists()
    assert start("apply", "last").wait(60) == 0
    assert (roots / "new").read_text() == "new\n"


def test_on_a_terminal_it_is_a_terminal_inside(box: Cli, start: Cli, terminal: Terminal):
    """Of the same size, resized with it; what is typed goes inside and the exit code comes out."""

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(terminal.theirs, termios.TIOCSCTTY, 0)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.theirs)
    process = start("sandbox", "exec", "-it", "box", "sh", preexec_fn=own_terminal, **streams)
    terminal.type("echo re''ady; stty size\n")
    terminal.expect(b"ready")
    terminal.expect(b"30 100")
    terminal.resize(40, 120)
    process.send_signal(signal.SIGWINCH)
    terminal.type("until stty size | grep '40 1''20'; do :; done; exit 5\n")
    terminal.expect(b"40 120")
    assert process.wait(40) == 5
