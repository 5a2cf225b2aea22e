"""Anchors on real git remotes, friendly and hostile ones."""

import os
import subprocess
from pathlib import Path

import anyio
import pytest

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.integrations.attestation import git_anchor
from ringfence.integrations.attestation.git_anchor import (
    AnchorMissing,
    append_anchor,
    find_anchor,
    parse_remote,
)
from ringfence.sandbox.workspace.git.command import GitBounds

ENVELOPE, HEAD = "a" * 64, "b" * 64


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    """Run git in a folder, with no settings of this machine, and return what it prints."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.com")
    done = subprocess.run(
        ["git", *identity, *words],
        cwd=folder,
        env=env,
        input=stdin,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout.decode().strip()


@pytest.fixture(params=["path", "file URL", "sha256"])
def remote(request, tmp_path: Path) -> git_anchor.GitRemote:
    """An empty remote, by path or by URL; the last has one commit, of git's other object format."""
    repository = tmp_path / "remote.git"
    kind = "sha256" if request.param == "sha256" else "sha1"
    git(tmp_path, "init", "--bare", "-q", f"--object-format={kind}", str(repository))
    if kind == "sha256":
        tree = git(repository, "hash-object", "-t", "tree", "-w", "/dev/null")
        git(
            repository,
            "update-ref",
            "refs/ringfence/anchors",
            git(repository, "commit-tree", "-m", "x", tree),
        )
    return parse_remote(repository.as_uri() if request.param == "file URL" else str(repository))


def repository_of(remote: git_anchor.GitRemote) -> Path:
    """The directory of a remote on this machine."""
    return Path(remote.url.removeprefix("file://"))


async def test_appended(remote):
    """An anchor is found again, with the head of its journal."""
    made = await append_anchor(remote, envelope=ENVELOPE, journal=HEAD)
    assert (made.envelope, made.journal) == (ENVELOPE, HEAD)
    assert await find_anchor(remote, envelope=ENVELOPE) == made
    with pytest.raises(AnchorMissing, match="c" * 64):
        await find_anchor(remote, envelope="c" * 64)


async def test_chain(remote):
    """Anchors form one chain: each has the one before as its parent, and all are found."""
    first = await append_anchor(remote, envelope=ENVELOPE, journal=HEAD)
    second = await append_anchor(remote, envelope="c" * 64, journal=HEAD)
    assert git(repository_of(remote), "rev-parse", f"{second.commit}^") == first.commit
    assert await find_anchor(remote, envelope=ENVELOPE) == first


async def test_appended_at_the_same_time(tmp_path: Path):
    """Anchors that are appended at the same time are all in the chain."""
    git(tmp_path, "init", "--bare", "-q", "remote.git")
    remote = parse_remote(str(tmp_path / "remote.git"))
    digests = [digit * 64 for digit in "0123"]

    async def append(digest: str) -> None:
        await append_anchor(remote, envelope=digest, journal=HEAD)

    async with anyio.create_task_group() as tasks:
        for digest in digests:
            tasks.start_soon(append, digest)
    for digest in digests:
        assert (await find_anchor(remote, envelope=digest)).envelope == digest


async def test_bundle(tmp_path: Path):
    """A bundle of the chain is searched without the remote, and cannot be appended to."""
    git(tmp_path, "init", "--bare", "-q", "remote.git")
    made = await append_anchor(parse_remote(str(tmp_path / "remote.git")), envelope=ENVELOPE, journal=HEAD)
    git(tmp_path / "remote.git", "bundle", "create", "-q", "../anchors.bundle", "refs/ringfence/anchors")
    bundle = parse_remote(str(tmp_path / "anchors.bundle"))
    assert bundle.kind == "bundle"
    assert await find_anchor(bundle, envelope=ENVELOPE) == made
    with pytest.raises(UsageError, match="bundle"):
        await append_anchor(bundle, envelope=ENVELOPE, journal=HEAD)


async def test_remote_that_refuses(tmp_path: Path):
    """A remote that refuses the ref keeps what it has."""
    git(tmp_path, "init", "--bare", "-q", "remote.git")
    repository = tmp_path / "remote.git"
    git(repository, "config", "transfer.hideRefs", "refs/ringfence")
    remote = parse_remote(str(repository))
    with pytest.raises(InfrastructureFault, match="did not take the anchor"):
        await append_anchor(remote, envelope=ENVELOPE, journal=HEAD)
    assert git(repository, "for-each-ref") == ""


async def test_nothing_of_a_local_remote_runs(tmp_path: Path):
    """Neither hooks nor commands in the settings of a repository on this machine run."""
    git(tmp_path, "init", "--bare", "-q", "remote.git")
    repository, mark = tmp_path / "remote.git", tmp_path / "mark"
    script = f"#!/bin/sh\necho ran >> {mark}\n"
    hooks = ["pre-receive", "update", "post-receive", "post-update", "reference-transaction", "proc-receive"]
    for name in (*hooks, "push-to-checkout", "fsmonitor"):
        (repository / "hooks" / name).write_text(script)
        (repository / "hooks" / name).chmod(0o755)
    program = str(repository / "hooks" / "fsmonitor")
    for key in (
        "core.fsmonitor",
        "core.alternateRefsCommand",
        "uploadpack.packObjectsHook",
        "core.sshCommand",
    ):
        git(repository, "config", key, program)
    git(repository, "config", "core.hooksPath", str(repository / "hooks"))
    git(tmp_path, "init", "--bare", "-q", "other.git")
    (repository / "objects" / "info" / "alternates").write_text(f"{tmp_path / 'other.git' / 'objects'}\n")
    remote = parse_remote(str(repository))
    await append_anchor(remote, envelope=ENVELOPE, journal=HEAD)
    await append_anchor(remote, envelope="c" * 64, journal=HEAD)
    await find_anchor(remote, envelope=ENVELOPE)
    assert not mark.exists()


async def test_a_local_remote_is_not_checked_out(tmp_path: Path):
    """A repository whose HEAD is on the anchors updates no work tree, which would run its filters."""
    git(tmp_path, "init", "-q", "remote")
    repository, mark = tmp_path / "remote", tmp_path / "mark"
    git(repository, "symbolic-ref", "HEAD", "refs/ringfence/anchors")
    (repository / "file").write_text("x\n")
    git(repository, "add", "file")
    git(repository, "commit", "-q", "-m", "x")
    (repository / ".git" / "info" / "attributes").write_text("* filter=mark\n")
    for key in ("clean", "smudge", "process"):
        git(repository, "config", f"filter.mark.{key}", f"touch {mark}")
    git(repository, "config", "receive.denyCurrentBranch", "updateInstead")
    os.utime(repository / "file", (0, 0))
    with pytest.raises(InfrastructureFault, match="refusing to update checked out branch"):
        await append_anchor(parse_remote(str(repository)), envelope=ENVELOPE, journal=HEAD)
    assert not mark.exists()


async def test_commits_of_others(tmp_path: Path):
    """Commits of another form, with escapes or a digest in other places, are no anchors."""
    git(tmp_path, "init", "--bare", "-q", "remote.git")
    repository = tmp_path / "remote.git"
    tree = git(repository, "hash-object", "-t", "tree", "-w", "/dev/null")
    tip = git(repository, "commit-tree", "-m", "start", tree)
    good = f"ringfence anchor\n\nEnvelope: sha256:{ENVELOPE}\nJournal: sha256:{HEAD}\n"
    for message in (
        "\x1b[2J",
        f"x {good}",
        good + "and more\n",
        good.replace("Journal", "journal"),
        "é" * 5000,
    ):
        tip = git(repository, "commit-tree", "-p", tip, tree, stdin=message.encode())
    git(repository, "update-ref", "refs/ringfence/anchors", tip)
    with pytest.raises(AnchorMissing):
        await find_anchor(parse_remote(str(repository)), envelope=ENVELOPE)


async def test_huge_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A remote that sends more than an anchor can need is given up."""
    monkeypatch.setattr(git_anchor, "_BOUNDS", GitBounds(memory_bytes=1024**3, file_bytes=1024**2))
    git(tmp_path, "init", "-q", "remote")
    (tmp_path / "remote" / "file").write_bytes(os.urandom(4 * 1024**2))
    git(tmp_path / "remote", "add", "file")
    git(tmp_path / "remote", "commit", "-q", "-m", "large")
    git(tmp_path / "remote", "update-ref", "refs/ringfence/anchors", "HEAD")
    with pytest.raises(InfrastructureFault, match=r"index-pack died|limit of file size"):
        await find_anchor(parse_remote((tmp_path / "remote").as_uri()), envelope=ENVELOPE)


async def test_absent_remote(tmp_path: Path):
    """A remote that does not exist, or has no such ref, is named."""
    with pytest.raises(InfrastructureFault, match="nowhere"):
        await find_anchor(parse_remote(str(tmp_path / "nowhere")), envelope=ENVELOPE)
    git(tmp_path, "init", "--bare", "-q", "remote.git")
    with pytest.raises(AnchorMissing, match="refs/other/x"):
        await find_anchor(parse_remote(f"{tmp_path / 'remote.git'}#refs/other/x"), envelope=ENVELOPE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#refs/x/y",
        "ext::sh -c id",
        "http://example.com/a.git",
        "git://example.com/a.git",
        "https://me:pw@example.com/a.git",
        "https://pw@example.com/a.git",
        "ssh://me:pw@example.com/a.git",
        "--upload-pack=x",
        "a\nb",
        "host:a#main",
        "host:a#refs/heads/../x",
        "host:a#refs/heads/\x1b[2J",
        "x" * 3000,
    ],
)
def test_remote_that_is_none(text: str):
    """Protocols that authenticate nobody, programs, passwords and malformed refs are refused."""
    with pytest.raises(UsageError) as raised:
        parse_remote(text)
    assert "pw" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("https://example.com/a.git", "remote"),
        ("ssh://git@example.com/a.git#refs/heads/anchors", "remote"),
        ("git@example.com:a.git", "remote"),
        ("file:///srv/a.git", "local repository"),
        ("/srv/a.git", "local repository"),
    ],
)
def test_remote(text: str, kind: str):
    """URLs, git's short form and paths name a remote; what follows `#` is the ref."""
    remote = parse_remote(text)
    assert remote.kind == kind
    assert remote.ref == text.partition("#")[2] or remote.ref == git_anchor.DEFAULT_REF
