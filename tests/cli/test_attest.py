"""`ringfence runs attest` and `ringfence attest`: what a run was travels to people who do not have its record."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.config.paths import state_dir
from ringfence.journal import run_dirs

Cli = Callable[..., Any]


@pytest.fixture
def attested(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli, git: Cli, tmp_path: Path
) -> tuple[Path, Path]:
    """The attestation of a run that changed the workspace and passed its check, and the public key."""
    git(workspace, "config", "remote.origin.url", "https://user:hunter2@example.com/a/b.git")
    commands = ("echo two > new.txt; chmod +x new.txt; ln -s new.txt link; rm app.py", "touch ignored.log")
    (workspace / ".gitignore").write_text("*.log\n")
    model = script(says("x", *commands), says())
    done = ringfence(
        *("run", "the secret task", "-C", workspace, "--model", model, "--verify", "test -x new.txt")
    )
    assert done.code == 0, done.err
    if not (workspace / "new.txt").exists():
        assert ringfence("apply", "-C", workspace).code == 0
    file = tmp_path / "run.json"
    assert ringfence("runs", "attest", "-o", file).code == 0
    key = tmp_path / "key.pub"
    shutil.copy(state_dir() / "keys" / "journal-ed25519.pub", key)
    return file, key


def test_a_run_is_attested_and_verified_elsewhere(
    ringfence: Cli, attested: tuple[Path, Path], workspace: Path, monkeypatch: pytest.MonkeyPatch, git: Cli
) -> None:
    """Without the state directory, which is not made; in the work tree, and in the commit that the user made of it."""
    file, key = attested
    state = workspace.parent / "no-state"
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(state))
    done = ringfence(
        "attest", "verify", file, "--key", key, "--tree", workspace, "--check", "test -x new.txt"
    )
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("\nverified\n")
    assert "began from commit " in done.out
    assert "https://example.com/a/b.git" in done.out
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", "done")
    done = ringfence(
        "attest", "verify", file, "--key", key, "--tree", workspace, "--commit", "HEAD", "--json"
    )
    found = json.loads(done.out)
    assert (done.code, found["verdict"]) == (0, "verified")
    assert git(workspace, "rev-parse", "HEAD^{tree}").strip() in found["proved"][-1]
    assert not state.exists()


def test_a_tree_that_was_changed_later_is_refused(
    ringfence: Cli, attested: tuple[Path, Path], workspace: Path
) -> None:
    """With exit code 3 and one line that names the first differing path; and so is a file that was changed."""
    file, key = attested
    (workspace / "new.txt").write_text("three\n")
    done = ringfence("attest", "verify", file, "--key", key, "--tree", workspace)
    assert (done.code, done.out.splitlines()[-1]) == (3, "NOT VERIFIED")
    assert (
        done.err == f"ringfence: {str(workspace)!r} is not the attested tree: 'new.txt' has other content\n"
    )
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    done = ringfence("attest", "verify", file, "--key", key, "--tree", workspace)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "was changed after it was signed" in done.err


def test_nothing_private_leaves_the_machine(
    ringfence: Cli, attested: tuple[Path, Path], workspace: Path, tmp_path: Path
) -> None:
    """No prompt, path of the host, password or word of the agent is in a statement."""
    file, _ = attested
    text = ringfence("attest", "show", file).out
    for private in (
        "secret task",
        "hunter2",
        str(workspace),
        str(tmp_path),
        str(state_dir()),
        str(Path.home()),
    ):
        assert private not in text
    assert json.loads(text)["predicate"]["prompt"].keys() == {"sha256"}
    done = ringfence("runs", "attest", "--with-prompt", "-o", tmp_path / "more.json")
    assert done.code == 0
    assert "the secret task" in ringfence("attest", "show", tmp_path / "more.json").out


def test_a_statement_holds_what_the_record_holds(
    ringfence: Cli, attested: tuple[Path, Path], events: Cli, git: Cli, workspace: Path
) -> None:
    """Head and length of the journal, base commit, check, patch, sandboxes."""
    file, _ = attested
    statement = json.loads(ringfence("attest", "show", file).out)
    predicate, journal = statement["predicate"], events()
    assert predicate["journal"]["head"] == journal[-1]["prev"]
    assert predicate["journal"]["lines"] == len(journal)
    assert predicate["source"]["commit"]["gitCommit"] == git(workspace, "rev-parse", "HEAD").strip()
    listed = next(each for each in journal if each["event"] == "files.recorded")["data"]["files"]
    assert statement["subject"][2]["digest"]["sha256"] == listed["work.patch"]
    trees = [each["data"]["tree"] for each in journal if each["event"] == "checkpoint.created"]
    assert [predicate["source"]["tree"]["gitTree"], statement["subject"][0]["digest"]["gitTree"]] == trees
    assert [each["purpose"] for each in predicate["sandboxes"]] == ["agent", "verify"]
    assert [each["path"] for each in predicate["manifest"]["files"]] == [".gitignore", "link", "new.txt"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("runs", "attest", "no-such-run"), 2, "there is no run"),
        (("runs", "attest", "--force"), 2, "--force overwrites the file of --output"),
        (("attest", "verify", "absent.json"), 2, "cannot be read"),
        (("attest", "verify", "app.py"), 78, "is not an attestation"),
        (("attest", "show", "app.py"), 78, "is not an attestation"),
        (("attest", "verify", "app.py", "--key", "app.py"), 78, "not a line of a list of keys"),
        (("attest", "verify", "app.py", "--commit", "HEAD"), 2, "add --tree DIR"),
        (("attest", "verify", "app.py", "--all-files"), 2, "add --tree DIR"),
        (("attest", "verify", "app.py", "--tree", ".", "--all-files", "--commit", "x"), 2, "leave out one"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_input_is_one_error(ringfence: Cli, workspace: Path, words: Any, code: int, text: str) -> None:
    """One line, and the documented exit code."""
    assert workspace.is_dir()
    done = ringfence(*words)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert text in done.err


@pytest.mark.slow
def test_a_damaged_record_is_not_attested(
    ringfence: Cli, start: Cli, workspace: Path, tmp_path: Path
) -> None:
    """Nor one whose checkpoint is gone; no file is written."""
    assert start("exec", "-C", workspace, "--", "true").wait(timeout=60) == 0
    output = tmp_path / "out.json"
    journal = run_dirs()[0] / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole.replace(b'"exec"', b'"Exec"', 1))
    done = ringfence("runs", "attest", "-o", output)
    assert (done.code, done.err.count("\n"), output.exists()) == (1, 1, False)
    assert "is broken" in done.err
    journal.write_bytes(whole)
    shutil.rmtree(state_dir() / "checkpoints")
    done = ringfence("runs", "attest", "-o", output)
    assert (done.code, done.err.count("\n"), output.exists()) == (1, 1, False)
    assert "`ringfence gc` removes old ones" in done.err


@pytest.mark.slow
def test_a_copy_of_the_record_is_verified_with_it(
    ringfence: Cli, start: Cli, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere, by the key in the statement; that of another run, or one that was changed, is refused."""
    for words in (("echo", "one"), ("echo", "two")):
        assert start("exec", "-C", workspace, "--", *words).wait(timeout=60) == 0
    for number, run in enumerate(run_dirs()):
        shutil.copytree(run, tmp_path / f"copy{number}")
    file, key = tmp_path / "a.json", tmp_path / "key.pub"
    shutil.copy(state_dir() / "keys" / "journal-ed25519.pub", key)
    assert ringfence("runs", "attest", run_dirs()[0].name, "-o", file).code == 0
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "no-state"))
    verify = ("attest", "verify", file, "--key", key, "--any-state", "--record")
    done = ringfence(*verify, tmp_path / "copy0")
    assert (done.code, done.err) == (0, "")
    assert "is the record that the statement is about" in done.out
    done = ringfence(*verify, tmp_path / "copy1")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "is not the record of the statement" in done.err
    (tmp_path / "copy0" / "work.json").write_text("{}")
    done = ringfence(*verify, tmp_path / "copy0")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert not (tmp_path / "no-state").exists()


@pytest.mark.slow
def test_a_run_without_a_check_needs_consent(
    ringfence: Cli, start: Cli, workspace: Path, tmp_path: Path
) -> None:
    """A command that ended well is no check; `--any-state` accepts it, and the prompt of `exec` stays here."""
    assert start("exec", "-C", workspace, "--", "echo", "hunter2").wait(timeout=60) == 0
    file, key = tmp_path / "exec.json", state_dir() / "keys" / "journal-ed25519.pub"
    file.write_text(ringfence("runs", "attest").out)
    assert "hunter2" not in ringfence("attest", "show", file).out
    verify = ("attest", "verify", file, "--key", key, "--tree", workspace)
    assert ringfence(*verify).code == 9
    assert ringfence(*verify, "--any-state").code == 0


@pytest.mark.slow
@pytest.mark.network
def test_a_clean_installation_verifies(
    ringfence: Cli, attested: tuple[Path, Path], workspace: Path, tmp_path: Path
) -> None:
    """The wheel in a new environment, with an empty home: verified, and refused after one byte was changed."""
    file, key = attested
    root = Path(__file__).resolve().parents[2]
    uv = str(Path(sys.executable).with_name("uv"))
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "UV_SYSTEM_CERTS": "1", "UV_PYTHON_DOWNLOADS": "never"}
    built = tmp_path / "dist"
    for words in (
        ("build", "--quiet", "--wheel", "--out-dir", str(built), "--python", sys.executable, str(root)),
        ("venv", "--quiet", "--python", sys.executable, str(tmp_path / "venv")),
        ("pip", "install", "--quiet", "--python", str(tmp_path / "venv"), str(built)),
    ):
        words = (*words[:-1], str(next(built.glob("*.whl")))) if words[0] == "pip" else words
        subprocess.run([uv, *words], env=environment, check=True, timeout=300)
    program = str(tmp_path / "venv" / "bin" / "ringfence")
    command = [program, "attest", "verify", str(file), "--key", str(key), "--tree", str(workspace)]
    clean = {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}

    def verify() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=60, check=False)

    done = verify()
    assert (done.returncode, done.stderr) == (0, "")
    data = file.read_bytes()
    file.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:])
    assert verify().returncode == 1
    assert list(home.rglob("*")) == []
