"""Attestations that travel with commits: attached, anchored, pushed, and verified elsewhere."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.promises.attested import CLONE, change, journal_key
from tests.promises.loop_scripts import GOOD, prepare, start, story
from tests.promises.product import Ended, Product


@pytest.fixture
def product(product: Product) -> Product:
    """A project in a repository, whose change by a run passed a check."""
    return change(product)


def verify(product: Product, *words: str | Path, tree: Path | None = None) -> Ended:
    """Verify the note of HEAD."""
    where = ("--tree", tree or product.project, "--commit", "HEAD")
    return product("attest verify", *where, "--key", journal_key(product), *words)


def test_applied_and_attested(product: Product) -> None:
    """`apply --commit --attest` makes a commit that names its attestation, which is attached to it."""
    product.does("apply", "--commit", "--attest")
    ended = verify(product)
    assert ended.code == 0, ended
    digest = product.git("log", "-1", "--format=%(trailers:key=Ringfence-Attestation,valueonly)").strip()
    note = subprocess.run(
        ["git", "-c", "safe.directory=*", "notes", "--ref=ringfence", "show", "HEAD"],
        cwd=product.project,
        capture_output=True,
        check=True,
    )
    file = product.place / "note"
    file.write_bytes(note.stdout)
    summed = subprocess.run(["sha256sum", file], capture_output=True, text=True, check=True).stdout
    assert digest == f"sha256:{summed.split()[0]}"


def test_pushed_and_verified_elsewhere(product: Product) -> None:
    """A clone that fetched the notes verifies the branch, and finds any other tree to differ."""
    product.does("apply", "--commit", "--attest")
    bundle, clone = product.place / "pushed.bundle", product.place / "clone"
    product.git("bundle", "create", "-q", str(bundle), "--all")
    subprocess.run(["git", "clone", "-q", "-b", "main", bundle, clone], check=True, capture_output=True)
    assert verify(product, tree=clone).code != 0
    fetch = [
        "git",
        "-c",
        "safe.directory=*",
        "fetch",
        "-q",
        "origin",
        "refs/notes/ringfence*:refs/notes/ringfence*",
    ]
    subprocess.run(fetch, cwd=clone, check=True, capture_output=True)
    assert verify(product, tree=clone).code == 0
    (clone / "app.py").write_text("three\n")
    commit = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qam", "x"]
    subprocess.run(commit, cwd=clone, check=True)
    assert "no attestation is attached" in verify(product, tree=clone).err
    subprocess.run(
        [
            "git",
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "notes",
            "--ref=ringfence",
            "copy",
            "HEAD~",
            "HEAD",
        ],
        cwd=clone,
        check=True,
    )
    ended = verify(product, tree=clone)
    assert ended.code == 3, ended
    assert "app.py" in ended.err


def test_attached_later(product: Product) -> None:
    """`runs attest --attach` attaches to a commit of exactly the attested tree, and to no other."""
    refused = product("runs attest", "last", "--attach", "HEAD")
    assert refused.code == 2, refused
    assert product.git("for-each-ref", "refs/notes") == ""
    product.does("apply", "--commit")
    product.does("runs attest", "last", "--attach", "HEAD")
    assert verify(product).code == 0


def test_dirty_workspace(product: Product) -> None:
    """A run that saw files in no commit is not attested for a commit without them, and nothing is written."""
    product.does("apply", "--commit")
    product.write("mine.txt", "mine\n")
    product.shell("echo more > more.txt", *CLONE)
    before = product.git("for-each-ref")
    ended = product("apply", "--commit", "--attest")
    assert ended.code != 0
    assert "mine.txt" in ended.err
    assert product.git("for-each-ref") == before
    assert not (product.project / "more.txt").exists()


def test_anchored_in_git(product: Product) -> None:
    """An anchor on a remote is required by the verifier, and another attestation of the same run has none."""
    product.does("apply", "--commit")
    remote = product.place / "anchors.git"
    subprocess.run(["git", "init", "-q", "--bare", remote], check=True)
    file = product.place / "run.attestation"
    product.does("runs attest", "last", "-o", file, "--anchor", f"git:{remote}")
    wanted = ("--key", journal_key(product), "--tree", product.project, "--anchor", f"git:{remote}")
    ended = product("attest verify", file, *wanted)
    assert ended.code == 0, ended
    assert "offline" in ended.out
    other = product.place / "other.attestation"
    product.does("runs attest", "last", "-o", other)
    assert product("attest verify", other, *wanted).code == 1


def test_signed_by_ssh(product: Product) -> None:
    """A key of OpenSSH signs, and its public key verifies."""
    key = product.place / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
    file = product.place / "run.attestation"
    product.does("runs attest", "last", "-o", file, "--sign-with", f"ssh:{key}")
    product.does("apply")
    tree = ("--tree", product.project)
    assert product("attest verify", file, "--key", f"{key}.pub", *tree).code == 0
    assert product("attest verify", file, "--key", journal_key(product), *tree).code == 77


def test_keys_from_the_tree(product: Product) -> None:
    """Keys that the verified tree brings along are refused."""
    product.does("apply", "--commit", "--attest")
    shutil.copy(journal_key(product), product.project / "trusted.pub")
    ended = product(
        "attest verify",
        "--tree",
        product.project,
        "--commit",
        "HEAD",
        "--key",
        product.project / "trusted.pub",
    )
    assert ended.code == 2, ended


def test_replaced_note(product: Product) -> None:
    """A note with another attestation than the commit names is refused, though it is signed by the same key."""
    product.does("apply", "--commit", "--attest")
    other = product.place / "other.attestation"
    product.does("runs attest", "last", "-o", other)
    product.git("notes", "--ref=ringfence", "add", "-f", "-F", str(other), "HEAD")
    ended = verify(product)
    assert ended.code == 1, ended
    assert "replaced" in ended.err


@pytest.mark.timeout(300)
def test_loop(make_product: Callable[[], Product]) -> None:
    """The branch of a loop is attested by the run that checked it; a branch that moved on is not."""
    product = make_product()
    prepare(product, story("add", 1))
    assert start(product, GOOD).code == 0
    made = product.does("loop attest", "--json").json
    branch = ("--tree", product.project, "--commit", made["branch"], "--key", journal_key(product))
    ended = product("attest verify", *branch)
    assert ended.code == 0, ended
    assert "the check 'python3 -m unittest -q' passed: 2 passed" in ended.out
    tree = product.git("rev-parse", "HEAD^{tree}").strip()
    moved = product.git("commit-tree", "-p", made["commit"], "-m", "more", tree).strip()
    product.git("update-ref", f"refs/heads/{made['branch']}", moved)
    assert product("loop attest").code == 2
    assert product("attest verify", *branch).code == 1
