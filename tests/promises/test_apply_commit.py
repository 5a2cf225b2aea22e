"""`ringfence apply --commit`: the changes of a run as one commit of the user's, or nothing at all."""

from collections.abc import Callable

import pytest
from tests.promises.product import Product

CLONE = ("--mode", "clone")


@pytest.fixture
def product(product: Product) -> Product:
    """A project with a repository in it, whose user is known to git."""
    product.write("app.py", "one\n")
    product.write("gone.txt", "bye\n")
    product.write("notes.txt", "notes\n")
    product.write(".gitignore", "*.pyc\n")
    product.git("init", "-q", "-b", "main")
    product.git("config", "user.name", "Ada Example")
    product.git("config", "user.email", "ada@example.com")
    product.git("add", "-A")
    product.git("commit", "-q", "-m", "start")
    product.shell("echo two > app.py; rm gone.txt; mkdir sub; echo new > sub/new.txt; echo x > a.pyc", *CLONE)
    return product


def git(product: Product, *words: str) -> str:
    """What git prints, without blanks around it."""
    return product.git(*words).strip()


def status(product: Product) -> str:
    """The files that differ from HEAD."""
    return product.git("status", "--porcelain")


def test_committed(product: Product) -> None:
    """The run's changes, and nothing else, are one commit by the user on the current branch."""
    product.write("other.txt", "mine\n")
    product.write("notes.txt", "my notes\n")
    product.does("apply", "--commit", "-m", "Change the app")
    assert git(product, "log", "-1", "--format=%an <%ae>|%cn|%s|%P") == (
        f"Ada Example <ada@example.com>|Ada Example|Change the app|{git(product, 'rev-parse', 'HEAD~')}"
    )
    assert product.git("show", "--name-status", "--format=", "HEAD").split() == [
        *("M", "app.py", "D", "gone.txt", "A", "sub/new.txt")
    ]
    assert {line.strip() for line in status(product).splitlines()} == {"M notes.txt", "?? other.txt"}
    assert git(product, "symbolic-ref", "HEAD") == "refs/heads/main"
    product.git("fsck", "--strict")


def test_message(product: Product) -> None:
    """Without a message the commit has the run's task or id, and in any case a trailer with the run."""
    product.does("apply", "--commit")
    (run,) = product.runs()
    assert git(product, "log", "-1", "--format=%(trailers:key=Ringfence-Run,valueonly)") == run


def test_after_apply(product: Product) -> None:
    """Changes that were applied before are committed as well."""
    product.does("apply")
    product.does("apply", "--commit")
    assert status(product) == ""


def test_detached(product: Product) -> None:
    """Without a branch HEAD itself moves."""
    product.git("checkout", "-q", "--detach")
    product.does("apply", "--commit")
    assert status(product) == ""
    assert product.git("rev-parse", "HEAD~") == product.git("rev-parse", "main")


def test_no_hook_runs(product: Product) -> None:
    """Neither hooks nor filters run: what they run may be what the agent wrote."""
    mark = product.place / "mark"
    for name in ("pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change"):
        product.write(f".git/hooks/{name}", f"#!/bin/sh\necho {name} >> {mark}\n", 0o755)
    product.git("config", "core.fsmonitor", f"touch {mark}")
    product.git("config", "commit.gpgsign", "true")
    product.git("config", "gpg.program", f"touch {mark}")
    product.does("apply", "--commit")
    assert not mark.exists()


def refused(product: Product) -> str:
    """Check that a commit is refused, and return the line that says why."""
    ended = product("apply", "--commit")
    assert ended.ends_as("failed"), ended
    _, why = ended.err.strip().splitlines()
    return why


def stage(product: Product) -> None:
    """Stage a change that is not in the file any more."""
    product.write("notes.txt", "staged\n")
    product.git("add", "notes.txt")
    product.write("notes.txt", "notes\n")


def lock(product: Product) -> None:
    """Let another git be at work."""
    product.write(".git/index.lock", "")


def merge(product: Product) -> None:
    """Be in the middle of a merge."""
    product.write(".git/MERGE_HEAD", product.git("rev-parse", "HEAD"))


def anonymous(product: Product) -> None:
    """Have no address."""
    product.git("config", "--unset", "user.email")


def convert(product: Product) -> None:
    """Let git convert files."""
    product.git("config", "core.autocrlf", "true")


def edit(product: Product) -> None:
    """Change a file of the run's after it."""
    product.write("app.py", "mine\n")


@pytest.mark.parametrize("prepare", [stage, lock, merge, anonymous, convert, edit])
def test_refused(product: Product, prepare: Callable[[Product], None]) -> None:
    """Where a commit is refused, no file, no ref and no index has changed."""
    prepare(product)

    def state() -> tuple[bytes, str, bytes, bool]:
        return (
            (product.project / "app.py").read_bytes(),
            product.git("for-each-ref"),
            (product.project / ".git/index").read_bytes(),
            (product.project / "sub").exists(),
        )

    before = state()
    refused(product)
    assert state() == before
    assert (product.project / ".git/index.lock").exists() == (prepare is lock)


def test_changes_of_the_user_before_the_run(product: Product) -> None:
    """A file that had changes of the user's before the run is not committed with them."""
    product.write("notes.txt", "my notes\n")
    product.shell("echo more >> notes.txt", *CLONE)
    assert "notes.txt" in refused(product)


@pytest.mark.parametrize(
    "words", [("--force", "--commit"), ("-m", "text")], ids=["force", "message without commit"]
)
def test_usage(product: Product, words: tuple[str, ...]) -> None:
    """Options that contradict each other are refused."""
    product("apply", *words).fails_as("usage")


def test_in_a_directory_of_the_repository(product: Product) -> None:
    """A workspace below the top of a repository is committed at its place."""
    product.write("part/app.py", "one\n")
    product.git("add", "-A")
    product.git("commit", "-q", "-m", "part")
    inside = product.project / "part"
    product.shell("echo two > app.py; echo new > new.txt", *CLONE, cwd=inside)
    product.does("apply", "--commit", cwd=inside)
    assert git(product, "show", "--name-only", "--format=", "HEAD").split() == ["part/app.py", "part/new.txt"]
    assert status(product) == ""


def test_names_and_kinds(product: Product) -> None:
    """Links, executables, odd names and a file in place of a directory are committed as they are."""
    product.write("folder/file", "x\n")
    product.git("add", "-A")
    product.git("commit", "-q", "-m", "folder")
    product.shell(
        "ln -s app.py link; echo '#!/bin/sh' > tool; chmod +x tool; printf x > 'a \"b'; rm -r folder; echo f > folder",
        *CLONE,
    )
    product.does("apply", "--commit")
    assert status(product) == ""
    listed = git(product, "ls-tree", "-z", "HEAD").split("\0")
    modes = {line.partition("\t")[2]: line[:6] for line in listed if line}
    assert {name: modes[name] for name in ("link", "tool", 'a "b', "folder")} == {
        "link": "120000",
        "tool": "100755",
        'a "b': "100644",
        "folder": "100644",
    }
