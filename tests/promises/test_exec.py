"""`exec`: one command in a sandbox."""

import os
import signal

import pytest
from tests.promises.needs import Fence, need_root
from tests.promises.product import OWNER, Product, give, poll, processes_with, read_until


def test_streams_and_exit_code_are_passed_on(product: Product, fence: Fence) -> None:
    """What the command prints comes out on the same stream, and its exit code is that of `exec`."""
    ended = product.shell("echo out; echo err >&2; exit 7", *fence)
    assert (ended.code, ended.stdout) == (7, b"out\n")
    assert ended.err.splitlines()[0] == "err"


def test_input_is_passed_on(product: Product, fence: Fence) -> None:
    """What is piped in is the command's input, byte by byte."""
    sent = bytes(range(256)) * 300
    ended = product("exec", *fence, "--", "cat", stdin=sent)
    assert (ended.code, ended.stdout) == (0, sent)


def test_no_input_is_the_end_of_input(shared: Product) -> None:
    """A command that nothing is piped into reads the end of its input at once."""
    assert shared.does("exec", "--", "wc", "-c").stdout.strip() == b"0"


def test_large_output_is_passed_on_whole(shared: Product) -> None:
    """Eight million bytes of output come out, none changed."""
    ended = shared.shell("head -c 8000000 /dev/zero | tr '\\0' a; head -c 1 /dev/zero")
    assert ended.code == 0
    assert ended.stdout == b"a" * 8_000_000 + b"\0"


def test_unknown_program(shared: Product) -> None:
    """A program that is not there ends with 127 and a line that names it, as in a shell."""
    ended = shared.exec("no-such-program")
    assert (ended.code, ended.out) == (127, "")
    (line,) = ended.err.splitlines()
    assert "no-such-program" in line


def test_program_that_cannot_be_executed(shared: Product) -> None:
    """A file that is no program ends with 126 and a line that names it, as in a shell."""
    ended = shared.exec("./app.py")
    assert ended.code == 126
    (line,) = ended.err.splitlines()
    assert "./app.py" in line


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV], ids=lambda each: each.name
)
def test_signal(shared: Product, number: signal.Signals) -> None:
    """A command that a signal ends gives 128 and the signal's number."""
    assert shared.shell(f"kill -{number.value} $$").code == 128 + number


def test_words_reach_the_program_as_they_are(shared: Product) -> None:
    """What follows `--` is the program and its arguments, whatever they look like; no shell comes between."""
    words = ["--json", "$HOME", "a b", "*", "", "-C", "'"]
    ended = shared.does("exec", "--", "printf", r"%s\n", *words)
    assert ended.out.split("\n")[:-1] == words


def test_directory(product: Product, fence: Fence) -> None:
    """A command begins in the workspace, which has its own path inside."""
    assert product.does("exec", *fence, "--", "pwd").out.strip() == str(product.project)


def test_another_workspace(product: Product) -> None:
    """`-C` names another workspace than the current directory."""
    ended = product.does("exec", "-C", product.project, "--", "cat", "app.py", cwd=product.home)
    assert ended.out == "print('one')\n"


def test_bind_writes_the_files_themselves(product: Product, fence: Fence) -> None:
    """In mode `bind` what a command writes is in the workspace, and belongs to the workspace's owner."""
    product.does("exec", *fence, "--mode", "bind", "--", "sh", "-c", "echo two > new.txt; rm app.py")
    made = product.project / "new.txt"
    assert made.read_text() == "two\n"
    assert made.stat().st_uid == (OWNER if os.getuid() == 0 else os.getuid())
    assert not (product.project / "app.py").exists()


def test_bind_is_the_mode_of_ones_own_files(product: Product) -> None:
    """Without `--mode`, what the workspace's owner could write is written to the workspace itself."""
    product.does("exec", "--", "touch", "made")
    assert (product.project / "made").exists()


def test_read_only(product: Product, fence: Fence) -> None:
    """In mode `read_only` nothing of the workspace can be written, and all of it read."""
    ended = product.shell("cat app.py; echo x > app.py || echo x > new", *fence, "--mode", "read_only")
    assert ended.code != 0
    assert ended.out == "print('one')\n"
    assert (product.project / "app.py").read_text() == "print('one')\n"
    assert not (product.project / "new").exists()


def test_clone(product: Product, fence: Fence) -> None:
    """In mode `clone` a command works on a copy without ignored files, and the workspace stays as it is."""
    product.write("untracked", "u")
    product.write("ignored/file", "i")
    ended = product.shell(
        "echo two > app.py; pwd; ls; test -e ignored || echo none", *fence, "--mode", "clone"
    )
    assert ended.code == 0
    assert ended.out.splitlines() == [str(product.project), "app.py", "untracked", "none"]
    assert (product.project / "app.py").read_text() == "print('one')\n"


def test_roots_files_are_worked_on_as_a_copy(product: Product) -> None:
    """Without `--mode`, files of root's stay as they are when root has a command work on them."""
    if os.getuid() != 0:
        pytest.skip("only root has files of root's")
    for path in (product.project, product.project / "app.py"):
        os.chown(path, 0, 0)
    product.does("exec", "--", "sh", "-c", "echo two > app.py")
    assert (product.project / "app.py").read_text() == "print('one')\n"


@pytest.fixture
def roots(product: Product) -> Product:
    """With a project that is root's."""
    need_root()
    give(product.project, 0)
    return product


def test_roots_files_themselves(roots: Product, fence: Fence) -> None:
    """With `--mode bind` root's own files are worked on by nobody who is root, stay root's, and come back by `undo`."""
    (roots.project / "app.py").chmod(0o600)
    script = (
        "id -u; echo two > app.py; mkdir made; echo x > made/file; git add -A; git commit -qm inside; git log"
    )
    ended = roots.does("exec", *fence, "--mode", "bind", "--", "sh", "-c", script)
    assert ended.out.splitlines()[0] != "0"
    assert "inside" in ended.out
    assert (roots.project / "app.py").read_text() == "two\n"
    for path in (roots.project / "app.py", roots.project / "made" / "file"):
        assert (path.stat().st_uid, path.stat().st_gid) == (0, 0)
    roots.does("undo", "last")
    assert (roots.project / "app.py").read_text() == "print('one')\n"
    assert not (roots.project / "made").exists()


def test_a_project_file_does_not_open_roots_files(roots: Product) -> None:
    """A project's own file cannot ask for root's files themselves until it is trusted."""
    roots.write("ringfence.yaml", "sandbox: {mode: bind}\n")
    ended = roots("exec", "--", "true")
    assert ended.ends_as("configuration")
    assert "sandbox.mode" in ended.err


def test_links_that_an_agent_leaves_lead_root_nowhere(roots: Product) -> None:
    """What root does in its own workspace after a run, `diff`, `undo` and the next run, follows no link out of it."""
    outside = roots.place / "outside"
    outside.mkdir(mode=0o700)
    (outside / "file").write_text("of root's\n")
    roots.write("folder/file", "before\n")
    script = (
        f"rm -r folder app.py; ln -s {outside} folder; ln -s {outside}/file app.py; ln -s {outside}/file new"
    )
    roots.does("exec", "--mode", "bind", "--", "sh", "-c", script)
    (run,) = roots.runs()
    assert "of root's" not in roots.does("diff", run, "--raw").out
    roots.does("exec", "--mode", "bind", "--", "true")
    roots.does("undo", run)
    assert (outside / "file").read_text() == "of root's\n"
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (roots.project / "folder" / "file").read_text() == "before\n"
    assert not (roots.project / "app.py").is_symlink()


def test_roots_powers_are_not_shown(roots: Product) -> None:
    """Where a file of root's would lend its rights to whoever runs it, `--mode bind` is refused, and the copy works."""
    tool = roots.project / "tool"
    tool.write_text("a program")
    tool.chmod(0o4755)
    ended = roots("exec", "--mode", "bind", "--", "true")
    assert ended.ends_as("refused")
    assert "tool" in ended.err
    assert "use mode 'clone'" in ended.err
    roots.does("exec", "--mode", "clone", "--", "true")


def test_nobody_is_root_inside(product: Product, fence: Fence) -> None:
    """A command runs neither with uid 0 nor with gid 0, whoever starts it."""
    assert "0" not in product.does("exec", *fence, "--", "sh", "-c", "id -u; id -g; id -G").out.split()


def test_environment(product: Product, fence: Fence) -> None:
    """A command has nothing of the caller's environment but what `--env` gives it."""
    ended = product(
        *("exec", *fence, "--env", "GIVEN=a=b", "--", "sh", "-c", "echo $GIVEN; env"),
        CALLERS="not-for-inside",
    )
    assert ended.out.splitlines()[0] == "a=b"
    assert "not-for-inside" not in ended.out
    assert str(product.home) not in ended.out


def test_home_inside_is_writable_and_empty(shared: Product) -> None:
    """The home inside is one of its own: empty, writable, and gone afterwards."""
    script = 'test -z "$(ls -A $HOME)" && echo x > $HOME/file && cat $HOME/file'
    assert [shared.shell(script).out for _ in range(2)] == ["x\n", "x\n"]


def test_setup_runs_first(product: Product, fence: Fence) -> None:
    """`--setup` runs shell commands inside, in their order, before the command; the record has each with its output."""
    options = ("--setup", "echo one > /tmp/steps", "--setup", "echo two >> /tmp/steps; echo printed")
    ended = product.does("exec", *fence, *options, "--", "cat", "/tmp/steps")
    assert ended.stdout.endswith(b"one\ntwo\n")
    commands = product.recorded("command.ended")
    assert [(each["argv"][-1], each["stdout"]) for each in commands[:-1]] == [
        ("echo one > /tmp/steps", ""),
        ("echo two >> /tmp/steps; echo printed", "printed\n"),
    ]


def test_setup_that_fails(product: Product) -> None:
    """A set-up command that fails ends everything before the command is run."""
    ended = product("exec", "--setup", "exit 3", "--", "touch", "made")
    assert ended.code != 0
    assert not (product.project / "made").exists()


def test_input_that_nobody_reads(shared: Product) -> None:
    """A command that does not read what is piped in ends all the same."""
    assert shared("exec", "--", "true", stdin=b"x" * 3_000_000).code == 0


def test_timeout(product: Product, fence: Fence) -> None:
    """`--timeout` ends a command with 124, what it printed and wrote until then is kept, and the record says so."""
    ended = product.shell("echo begun; echo x > file; sleep 600", *fence, "--timeout", "2s")
    assert ended.ends_as("timed out")
    assert "--timeout" in ended.err
    assert ended.out == "begun\n"
    assert (product.project / "file").exists()
    assert product.ended()["state"] == "timed_out"


def test_what_is_left_in_the_background_dies(shared: Product) -> None:
    """What a command leaves in the background does not outlive it, nor keeps `exec` from ending."""
    ended = shared.shell("setsid sleep 4242 >/dev/null 2>&1 & echo begun")
    assert (ended.code, ended.out) == (0, "begun\n")
    assert not processes_with(b"sleep\x004242")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_interruption(product: Product, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end the command with 130, keep what it made, and seal the record."""
    with product.started("exec", "--", "sh", "-c", "echo x > file; echo begun; sleep 600") as process:
        read_until(process.stdout, b"begun")
        process.send_signal(number)
        assert process.wait(30) == 130
    assert (product.project / "file").exists()
    assert product.ended()["state"] == "cancelled"
    assert product.record()[-1]["event"] == "journal.sealed"


def test_killed(product: Product) -> None:
    """Nothing inside outlives a `kill -9` of the command."""
    with product.started("exec", "--", "sh", "-c", "echo begun; sleep 4243") as process:
        read_until(process.stdout, b"begun")
        process.kill()
    poll(lambda: not processes_with(b"sleep\x004243"))


def test_closed_pipe(product: Product) -> None:
    """A reader that goes away ends the command with 141, as it ends `yes` in a shell."""
    with product.started("exec", "--", "yes") as process:
        read_until(process.stdout, b"y\n")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE


def test_no_command(shared: Product) -> None:
    """Without a command after `--` it is a usage error."""
    shared("exec").fails_as("usage", "CMD")


def test_record(product: Product) -> None:
    """A command has a sealed record with the task, the workspace, the sandbox, the output and the end."""
    product.shell("echo recorded-word; exit 3")
    events = [line["event"] for line in product.record()]
    assert events[0] == "journal.opened"
    assert events[-1] == "journal.sealed"
    (created,) = product.recorded("job.created")
    assert "recorded-word" in created["prompt"]
    assert created["workspace"] == str(product.project)
    assert {"sandbox.created", "sandbox.destroyed", "work.exported"} <= set(events)
    (command,) = product.recorded("command.ended")
    assert (command["argv"][0], command["stdout"], command["exit_code"]) == ("sh", "recorded-word\n", 3)
    assert product.ended()["state"] == "failed"
    for words in (("runs verify", "last"), ("runs show", "last")):
        product.does(*words)
    assert product.does("runs export", "last").json["outcome"]["state"] == "failed"
