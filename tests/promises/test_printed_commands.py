"""The commands that the end of a run prints."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.promises.product import PYTHON, Product, says

COMMIT = "echo two > app.py; echo new > new.txt; git add -A; git commit -qm second -m $(date +%N)"
"""A new commit each time: git gives what is committed again within a second the id that it had."""
CHANGE = "echo two > app.py; echo new > new.txt"
WRITES = re.compile(r"ringfence (apply|undo)|git.* merge")
PRINTED = re.compile(r"[`(]((?:ringfence|git|setpriv|!) [^`)\n]+)[`)]")


def printed_commands(output: str) -> list[str]:
    """The commands in backticks or parentheses of the text."""
    found = PRINTED.findall(output)
    assert found, output
    return found


def execute(product: Product, command: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Execute a printed command as a user would: by a shell, in the project, with `ringfence` in PATH."""
    programs = product.place / "bin"
    programs.mkdir(exist_ok=True)
    program = programs / "ringfence"
    program.write_text(f'#!/bin/sh\nexec {PYTHON} -P -m ringfence "$@"\n')
    program.chmod(0o755)
    path = f"{programs}:{product.environment['PATH']}"
    return subprocess.run(
        ["sh", "-c", command],
        cwd=cwd or product.project,
        env=product.variables(PATH=path, PAGER="cat"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("script", [CHANGE, COMMIT], ids=["files", "commits"])
@pytest.mark.parametrize("mode", ["bind", "clone"])
@pytest.mark.parametrize("way", ["run", "exec", "sandbox"])
def test_each_printed_command_works(product: Product, way: str, mode: str, script: str) -> None:
    """Each command that the end of a run names works there and then, whatever the mode."""
    commands = end_of_run(product, way, mode, script)
    for position in sorted(range(len(commands)), key=lambda each: bool(WRITES.search(commands[each]))):
        done = execute(product, commands[position])
        assert done.returncode == 0, (commands[position], done)
        if WRITES.search(commands[position]):
            product.git("reset", "-q", "--hard", product.git("rev-list", "--max-parents=0", "HEAD").strip())
            product.git("clean", "-fdq")
            commands = end_of_run(product, way, mode, script)


def end_of_run(product: Product, way: str, mode: str, script: str) -> list[str]:
    """Let a run change the project, and return the commands that its end prints."""
    if way == "run":
        return printed_commands(
            product.run(product.script(says("I do it.", script), says("done")), "--mode", mode).err
        )
    if way == "exec":
        printed = PRINTED.findall(product.shell(script, "--mode", mode).err)
        assert printed or (mode, script) == ("bind", CHANGE), "exec names no command"
        return printed
    product.does("sandbox create", "box", "--mode", mode)
    product.does("sandbox exec", "box", "--", "sh", "-c", script)
    return printed_commands(product.does("sandbox rm", "box").err)


def test_commits_are_taken_over(product: Product) -> None:
    """In the project itself the printed command moves the branch to the commit, and leaves other changes alone."""
    ended = product.run(product.script(says("I do it.", COMMIT), says("done")), "--mode", "bind")
    (command,) = [each for each in printed_commands(ended.err) if "git " in each]
    product.write("mine", "m")
    product.write(".gitignore", "also ignored\n")
    assert execute(product, command).returncode == 0
    assert product.git("log", "--format=%s").split() == ["second", "first"]
    assert product.git("status", "--porcelain").splitlines() == [" M .gitignore", "?? mine"]


def test_the_first_commit_of_a_repository(product: Product) -> None:
    """Where the branch has no commit yet, the printed command gives it the run's."""
    product.git("update-ref", "-d", "HEAD")
    ended = product.run(product.script(says("I do it.", COMMIT), says("done")), "--mode", "bind")
    (command,) = [each for each in printed_commands(ended.err) if "git " in each]
    assert execute(product, command).returncode == 0
    assert product.git("log", "--format=%s").split() == ["second"]
    assert product.git("status", "--porcelain") == ""


@pytest.mark.parametrize("mode", ["bind", "clone"])
def test_a_run_on_another_directory(product: Product, mode: str) -> None:
    """Where the workspace is not the current directory, the printed command names it."""
    model = product.script(says("I do it.", COMMIT), says("done"))
    ended = product.run(model, "--workspace", product.project, "--mode", mode, cwd=product.place)
    (command,) = [each for each in printed_commands(ended.err) if "git " in each]
    assert execute(product, command, cwd=product.place).returncode == 0
    assert product.git("log", "--format=%s").split() == ["second", "first"]


def test_commits_that_do_not_follow_touch_nothing(product: Product) -> None:
    """Where the user has committed since, the printed command fails and leaves index and branch alone."""
    ended = product.run(product.script(says("I do it.", COMMIT), says("done")), "--mode", "bind")
    (command,) = [each for each in printed_commands(ended.err) if "git " in each]
    product.write("mine", "m")
    product.git("add", "mine")
    product.git("commit", "-qm", "mine")
    before = product.git("status", "--porcelain"), product.git("rev-parse", "HEAD")
    assert execute(product, command).returncode != 0
    assert (product.git("status", "--porcelain"), product.git("rev-parse", "HEAD")) == before
