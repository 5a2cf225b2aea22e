"""What a run changed: `diff`, `undo`, `apply`, and checkpoints by hand."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.promises.needs import Fence
from tests.promises.product import Product, give

CHANGE = (
    "echo two > app.py; rm gone.txt; printf '\\0\\1' >> data.bin; mkdir dir; echo n > dir/new.txt; "
    "ln -s app.py link; chmod +x tool; echo z > 'é ü.txt'"
)
CHANGED = ["app.py", "data.bin", "dir/new.txt", "gone.txt", "link", "tool", "é ü.txt"]


def prepare(product: Product) -> None:
    """Give the workspace what is changed."""
    product.write("gone.txt", "bye\n")
    product.write("tool", "#!/bin/sh\n")
    (product.project / "data.bin").write_bytes(bytes(range(256)) * 10)
    give(product.project)


def contents(place: Path) -> dict[str, tuple[bytes, bool]]:
    """Files and links of a directory, git's own aside: what they hold, and whether they can be executed."""
    found = {}
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if name != ".git"]
        for path in (Path(folder, name) for name in files):
            held = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
            found[str(path.relative_to(place))] = (held, os.access(path, os.X_OK))
    return found


@pytest.fixture(scope="module")
def changed(make_product: Callable[[], Product]) -> Product:
    """A product whose one run changed files in each way that there is."""
    product = make_product()
    prepare(product)
    product.does("exec", "--", "sh", "-c", CHANGE)
    return product


def test_diff_names_each_change(changed: Product) -> None:
    """`diff --stat` names each file that was changed, made, deleted, linked or made executable, and no other."""
    lines = changed.does("diff", "last", "--stat").out.splitlines()
    assert len(lines) == len(CHANGED)
    assert all(any(line.endswith(name) for line in lines) for name in CHANGED)


def test_diff_is_a_patch(changed: Product) -> None:
    """`diff --raw` prints what `git apply` makes of the earlier state the later one, binary files and modes too."""
    patch = changed.does("diff", "last", "--raw").stdout
    copy = changed.place / "copy"
    copy.mkdir()
    (copy / "app.py").write_text("print('one')\n")
    (copy / "gone.txt").write_text("bye\n")
    (copy / "tool").write_text("#!/bin/sh\n")
    (copy / "data.bin").write_bytes(bytes(range(256)) * 10)
    subprocess.run(["git", "apply"], input=patch, cwd=copy, env=changed.environment, check=True)
    after = contents(changed.project)
    del after[".gitignore"]
    assert contents(copy) == after


def test_record_counts_changes(changed: Product) -> None:
    """The record says how many files were changed."""
    (exported,) = changed.recorded("work.exported")
    assert exported["files_changed"] == len(CHANGED)


def test_diff_by_id(changed: Product) -> None:
    """A run is named by its id, by the beginning of that, or by `last`, and `diff` says on stderr which one it took."""
    (run,) = changed.runs()
    asked = [changed.does("diff", name, "--stat") for name in (run, run[:-1], "last")]
    assert len({each.out for each in asked}) == 1
    assert all(run in each.err for each in asked)


def test_undo_and_apply(product: Product, fence: Fence) -> None:
    """`undo` gives back exactly what was there before a run, and `apply` exactly what the run made."""
    prepare(product)
    before = contents(product.project)
    product.does("exec", *fence, "--", "sh", "-c", CHANGE)
    after = contents(product.project)
    product.does("undo", "last")
    assert contents(product.project) == before
    product.does("apply", "last")
    assert contents(product.project) == after


_REPOSITORY = (
    "mkdir sub && cd sub && git init -q && git config core.fsmonitor 'touch fired; false' && echo x > file"
)


@pytest.mark.parametrize(
    "more", ["true", "chmod 0 .git", "chmod 500 ."], ids=["plain", "shut", "in-a-shut-directory"]
)
def test_undo_takes_repositories_out(more: str, product: Product) -> None:
    """A repository that the run made is out of the workspace after `undo`, which says where it is now."""
    product.shell(f"{_REPOSITORY}; {more}")
    undone = product.does("undo", "last")
    assert not (product.project / "sub").exists()
    assert "moved: 'sub/.git', a repository that the run made, to '" in undone.err
    (place,) = (product.file("run", run=product.runs()[0]) / "undone-git").iterdir()
    assert str(place) in undone.err


def test_undo_says_that_a_repository_is_there_still(product: Product) -> None:
    """Where a repository cannot be moved, `undo` says so, how to remove it, and does not end with 0."""
    product.shell(_REPOSITORY)
    (product.file("run", run=product.runs()[0]) / "undone-git").write_text("in the way")
    undone = product("undo", "last")
    assert undone.code == 1
    assert "NOT undone: 'sub/.git', a repository that the run made" in undone.err
    assert "rm -rf sub/.git" in undone.err


def test_undo_names_ignored_files_that_run(product: Product) -> None:
    """What git ignores is in no checkpoint: where that runs on the host, `undo` names it and fails."""
    made = "mkdir -p ignored/refs; echo 'ref: refs/heads/x' > ignored/HEAD; echo '[core]' > ignored/config"
    product.shell(made)
    undone = product("undo", "last")
    assert undone.code == 1
    assert "NOT undone: 'ignored/config'" in undone.err
    assert "nothing to undo" not in undone.err
    shutil.rmtree(product.project / "ignored")
    product.does("undo", "last")


def test_undo_takes_no_commit_back(product: Product) -> None:
    """`undo` of a run that only committed fails, and names the newest run that changed files."""
    product.shell("echo two > app.py")
    (changed,) = product.runs()
    product.shell("git commit -qam two")
    ended = product("undo", "last")
    assert ended.code != 0
    assert changed[-8:] in ended.err
    assert (product.project / "app.py").read_text() == "two\n"


def test_undo_leaves_a_repository_that_came_later(product: Product) -> None:
    """A repository that you made in the place of the run's is yours, and stays."""
    product.shell(_REPOSITORY)
    shutil.rmtree(product.project / "sub/.git")
    product.git("init", "-q", "sub")
    product.does("undo", "last")
    assert (product.project / "sub/.git/HEAD").is_file()


def test_undo_leaves_the_owner(product: Product) -> None:
    """What `undo` writes, directories too, belongs to the workspace's owner."""
    product.write("dir/file", "mine")
    product.shell("rm -r dir")
    product.does("undo", "last")
    owner = product.project.stat()
    for path in (product.project / "dir", product.project / "dir/file"):
        assert (path.stat().st_uid, path.stat().st_gid) == (owner.st_uid, owner.st_gid)


def test_undo_leaves_other_changes(product: Product) -> None:
    """Changes of the user's in other files stay when a run is undone."""
    product.shell("echo two > app.py")
    product.write("mine", "m")
    product.does("undo", "last")
    assert (product.project / "app.py").read_text() == "print('one')\n"
    assert (product.project / "mine").read_text() == "m"


@pytest.mark.parametrize("command", ["undo", "apply"])
def test_a_file_that_was_changed_since(product: Product, command: str) -> None:
    """Where a file was changed since, nothing is written and the file is named; `--force` writes over it."""
    product.shell(
        "echo two > app.py; echo new > new.txt", *(["--mode", "clone"] if command == "apply" else [])
    )
    product.write("app.py", "mine\n")
    refused = product(command, "last")
    assert refused.code == 1
    assert "app.py" in refused.err.splitlines()[-1]
    assert (product.project / "app.py").read_text() == "mine\n"
    assert (product.project / "new.txt").exists() == (command == "undo")
    product.does(command, "last", "--force")
    assert (product.project / "app.py").read_text() != "mine\n"


@pytest.mark.parametrize("command", ["undo", "apply"])
def test_what_force_overwrites_comes_back(product: Product, command: str) -> None:
    """`--force` names what it overwrites, and the opposite command brings that back; in other files it does as ever."""
    mode, opposite = (["--mode", "clone"], "undo") if command == "apply" else ([], "apply")
    product.shell("echo two > app.py; echo new > new.txt", *mode)
    product.write("app.py", "mine\n")
    forced = product.does(command, "last", "--force")
    assert "'app.py'; `ringfence " + opposite in forced.err
    product.does(opposite, "last")
    assert (product.project / "app.py").read_text() == "mine\n"
    assert (product.project / "new.txt").exists() == (opposite == "apply")


def test_ignored_files(product: Product) -> None:
    """Ignored files are no part of a run's changes: they are neither shown nor taken back."""
    product.write("kept.log", "k")
    product.shell("echo more >> kept.log; echo x > made.log; echo y > seen")
    assert product.does("diff", "last", "--stat").out.split()[-1] == "seen"
    product.does("undo", "last")
    assert (product.project / "made.log").exists()
    assert (product.project / "kept.log").read_text() == "kmore\n"


def test_ignore_rules_of_before_count(product: Product) -> None:
    """An agent that edits the ignore rules hides nothing that it makes, and has nothing of the user's deleted."""
    product.write("kept.log", "k")
    product.shell("echo '*' > .gitignore; echo x > hidden")
    assert "hidden" in product.does("diff", "last", "--stat").out
    product.does("undo", "last")
    assert not (product.project / "hidden").exists()
    assert (product.project / "kept.log").exists()


def test_work_on_a_copy_is_applied(product: Product, fence: Fence) -> None:
    """What was made on a copy comes into the workspace by `apply`, which the end of the command names; and out again."""
    prepare(product)
    before = contents(product.project)
    ended = product.shell(CHANGE, *fence, "--mode", "clone")
    assert "apply" in ended.err
    assert contents(product.project) == before
    product.does("apply", "last")
    assert (product.project / "app.py").read_text() == "two\n"
    assert not (product.project / "gone.txt").exists()
    assert os.access(product.project / "tool", os.X_OK)
    product.does("undo", "last")
    assert contents(product.project) == before


def test_nothing_was_changed(product: Product) -> None:
    """Of a run that changed nothing `diff` prints nothing, with exit code 0."""
    product.exec("true")
    assert product.does("diff", "last").stdout == b""


def test_last_is_of_this_workspace(product: Product) -> None:
    """`diff last` is about the workspace one is in, whatever was run elsewhere."""
    product.shell("echo two > app.py")
    elsewhere = product.place / "elsewhere"
    elsewhere.mkdir()
    give(elsewhere)
    product.shell("echo x > other", cwd=elsewhere)
    assert product.does("diff", "last", "--stat").out.split()[-1] == "app.py"
    assert product.does("diff", "last", "--stat", cwd=elsewhere).out.split()[-1] == "other"


@pytest.mark.parametrize("command", ["diff", "undo", "apply"])
def test_last_is_the_newest_run(product: Product, command: str) -> None:
    """`last` is the newest run here; where that changed nothing, the newest one with pending changes is named only."""
    product.shell("echo two > app.py")
    (changed,) = product.runs()
    product.exec("true")
    ended = product(command, "last")
    assert (ended.code == 0) == (command == "diff")
    assert ended.stdout == b""
    assert (changed[-8:] in ended.err) == (command != "apply")
    assert (product.project / "app.py").read_text() == "two\n"
    assert product.does("diff", changed, "--stat").out.split()[-1] == "app.py"


def test_undo_of_last_goes_no_further(product: Product) -> None:
    """A second `undo last` does not go on to the run before: the newest one that changed something is undone."""
    product.shell("echo two > app.py")
    product.shell("echo three > other.py")
    product.does("undo", "last")
    assert "nothing to undo" in product.does("undo", "last").err
    assert (product.project / "app.py").read_text() == "two\n"


@pytest.mark.parametrize("command", ["apply", "undo"])
def test_a_state_that_is_reached_already_is_no_failure(product: Product, command: str) -> None:
    """A second `apply` or `undo` of a run has nothing to do, says so and exits with 0."""
    product.shell("echo two > app.py", *(["--mode", "clone"] if command == "apply" else []))
    product.does(command, "last")
    assert f"nothing to {command}" in product.does(command, "last").err


def test_records_of_last_are_of_this_workspace(product: Product) -> None:
    """`last` is a run on the workspace one is in for the commands on records, too, and a usage error elsewhere."""
    product.shell("echo two > app.py")
    (here,) = product.runs()
    elsewhere = product.place / "elsewhere"
    elsewhere.mkdir()
    give(elsewhere)
    product.shell("echo x > other", cwd=elsewhere)
    assert here in product.does("runs show", "last").out
    assert here in product.does("runs verify", "last").out
    product("runs show", "last", cwd=product.place).fails_as("usage")


def test_no_run_to_show(product: Product) -> None:
    """Where there was no run, `diff last` is a usage error of one line."""
    product("diff", "last").fails_as("usage")


def test_links_are_not_followed(product: Product) -> None:
    """A link that a run put in the place of a directory leads no `undo` out of the workspace."""
    product.write("dir/file", "mine\n")
    outside = product.place / "outside"
    outside.mkdir()
    (outside / "file").write_text("outside\n")
    product.shell(f"echo x > dir/file; rm -r dir; ln -s {outside} dir")
    product.does("undo", "last")
    assert (outside / "file").read_text() == "outside\n"
    assert not (product.project / "dir").is_symlink()
    assert (product.project / "dir/file").read_text() == "mine\n"


@pytest.fixture
def kept(product: Product) -> Product:
    """A product whose workspace was kept as `one`, and then changed."""
    product.does("checkpoint create", "one")
    product.write("app.py", "later\n")
    product.write("extra", "e")
    return product


def test_checkpoint(kept: Product) -> None:
    """A checkpoint that is restored gives the files that were there, and takes away those that came since."""
    kept.does("checkpoint restore", "one")
    assert contents(kept.project).keys() == {"app.py", ".gitignore"}
    assert (kept.project / "app.py").read_text() == "print('one')\n"


def test_restore_can_be_taken_back(kept: Product) -> None:
    """What was there before a restore is kept as `before-restore`."""
    before = contents(kept.project)
    kept.does("checkpoint restore", "one")
    kept.does("checkpoint restore", "before-restore")
    assert contents(kept.project) == before


def test_checkpoint_diff(kept: Product) -> None:
    """`checkpoint diff` names what changed since, and compares two of them."""
    assert [line.split()[-1] for line in kept.does("checkpoint diff", "one", "--stat").out.splitlines()] == [
        "app.py",
        "extra",
    ]
    kept.does("checkpoint create", "two")
    (kept.project / "extra").unlink()
    assert "extra" in kept.does("checkpoint diff", "one", "two", "--stat").out


def test_checkpoint_list(kept: Product) -> None:
    """`checkpoint ls --json` lists what was kept by hand, and nothing of it once it is removed."""
    kept.does("checkpoint create", "two")
    assert {row["name"] for row in kept.does("checkpoint ls", "--json").json} == {"one", "two"}
    kept.does("checkpoint rm", "one")
    assert {row["name"] for row in kept.does("checkpoint ls", "--json").json} == {"two"}


def test_checkpoint_names_are_used_once(kept: Product) -> None:
    """A name that is there is a usage error, unless `--force` replaces it."""
    kept("checkpoint create", "one").fails_as("usage", "one")
    kept.does("checkpoint create", "one", "--force")
    assert kept.does("checkpoint diff", "one").out == ""


def test_checkpoint_names(shared: Product) -> None:
    """A name of other characters than letters, digits, `_` and `-` is a usage error that holds it."""
    shared("checkpoint create", "a/../b").fails_as("usage", "a/../b")


def test_checkpoints_leave_the_repository_alone(kept: Product) -> None:
    """Checkpoints and runs leave no object, ref or file in the user's repository."""
    before = kept.git("for-each-ref") + kept.git("count-objects", "-v")
    kept.does("checkpoint create", "two")
    kept.exec("true")
    assert kept.git("for-each-ref") + kept.git("count-objects", "-v") == before


def test_the_index_and_head_stay(product: Product) -> None:
    """What the user has staged, checked out and stashed is as it was after a run, `undo` and `apply`."""
    product.write("staged", "s")
    product.git("add", "staged")

    def state() -> str:
        return (
            product.git("diff", "--cached", "--raw")
            + product.git("symbolic-ref", "HEAD")
            + product.git("log")
        )

    before = state()
    product.shell("git add -A; git commit -qm inside; git checkout -qb other; echo two > app.py")
    product.does("undo", "last")
    product.does("apply", "last")
    assert state() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="root acts as the one to whom a workspace belongs")
def test_undo_in_a_workspace_that_root_took(product: Product) -> None:
    """Where the workspace came to belong to root since, `undo` prints the command that gives it back, and then works."""
    owner = product.project.stat().st_uid
    product.exec("touch", "made")
    subprocess.run(["chown", "-R", "0:0", str(product.project)], check=True)
    ended = product("undo", "last")
    assert ended.ends_as("infrastructure")
    assert f"belonged to user {owner}" in ended.err
    subprocess.run(shlex.split(ended.err.split("`")[1]), check=True)
    product.does("undo", "last")
    assert not (product.project / "made").exists()


def test_binary_files_are_folded(product: Product) -> None:
    """`diff` shows text first, and of a binary file its name and size only; the patch that is kept has all of it."""
    product.shell("head -c 3000 /dev/urandom > a.bin; echo readable > z.txt")
    shown = product.does("diff", "last").out
    assert shown.index("+readable") < shown.index("a.bin")
    assert "3000 bytes" in shown
    assert len(shown) < 1000
    assert len(product.does("diff", "last", "--raw").stdout) > 3000
