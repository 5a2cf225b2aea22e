"""Anchors in git: a chain of commits on a remote, each of which names an envelope and the head of its journal.

An anchor is a commit with an empty tree whose message holds digests only. A push never forces: the remote accepts it
only if its ref is still the commit's parent, so that the chain only grows, whoever else appends to it.

Git runs in a temporary directory that Ringfence made, with the user's own credentials and no program of a workspace:
neither hooks nor settings of a local remote have an effect. What a remote sends is bounded, and read as data.
"""

import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.frozen import frozen
from ringfence.process import ProcessResult
from ringfence.sandbox.workspace.git.command import (
    ENVIRONMENT,
    GitBounds,
    reached_bound,
    run_git,
    write_clean_git_dir,
)
from ringfence.sandbox.workspace.git.refs import is_ref_name
from ringfence.sandbox.workspace.run_as import Actor

DEFAULT_REF = "refs/ringfence/anchors"
MAX_ANCHORS = 100_000
"""Commits of a chain that are searched."""
_SUBJECT = "ringfence anchor"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MAX_REMOTE = 2000
_REMOTE_S = 120.0
_LOCAL_S = 30.0
_SEARCH_BYTES = 64 * 1024**2
_BOUNDS = GitBounds(memory_bytes=1024**3, file_bytes=256 * 1024**2)
_RETRIES = 5
_AUTHOR = "ringfence"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin"
_OPTIONS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.alternateRefsCommand=true",
    "core.pager=cat",
    "fetch.fsckObjects=true",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "push.gpgSign=false",
    "push.followTags=false",
    "transfer.bundleURI=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
_ON_LOCAL = " ".join(
    f"-c {option}"
    for option in (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.alternateRefsCommand=true",
        "receive.autogc=false",
        "receive.denyCurrentBranch=refuse",  # else a push may update a work tree, with the filters of that repository
    )
)
"""For the other end, if this machine runs it: the repository may be one that an agent wrote."""

RemoteKind = Literal["remote", "local repository", "bundle"]


class AnchorMissing(RingfenceError):
    """An anchor is not where it has to be, or is of another envelope."""


@frozen
class GitRemote:
    """Where a chain of anchors is."""

    url: str
    ref: str
    kind: RemoteKind

    def __str__(self) -> str:
        return f"git:{self.url}#{self.ref}"


@frozen
class GitAnchor:
    """An anchor as it stands in a chain."""

    commit: str
    envelope: str
    """SHA-256 of the envelope's bytes, in hexadecimal."""
    journal: str
    """SHA-256 of the last line of the journal before its seal, in hexadecimal."""
    time_s: int
    """The time in the commit, by the clock of the machine that made it; it proves nothing."""


def parse_remote(text: str) -> GitRemote:
    """Return the remote that `REMOTE[#refs/...]` names.

    Raises:
        UsageError: It names none, one whose protocol does not authenticate it, or holds a password.
    """
    url, _, ref = text.partition("#")
    ref = ref or DEFAULT_REF
    if not is_ref_name(ref):
        raise UsageError(f"{ref[:100]!r} is no full name of a git ref; give one such as {DEFAULT_REF!r}")
    if not url or url.startswith("-") or len(url) > _MAX_REMOTE or any(char < " " for char in url):
        raise UsageError(f"{url[:100]!r} is no git remote; give a URL (https://, ssh://, file://) or a path")
    if "://" in url:
        return GitRemote(url, ref, _kind_of_url(url))
    if re.match(r"[^/]+:", url):  # git's scp-like form, HOST:PATH
        if "::" in url:
            raise UsageError(
                f"{url[:100]!r} names a git remote helper; give an https:// or ssh:// URL, or a path"
            )
        return GitRemote(url, ref, "remote")
    path = Path(url).absolute()
    return GitRemote(str(path), ref, "bundle" if path.is_file() else "local repository")


def _kind_of_url(url: str) -> RemoteKind:
    parts = urlsplit(url)
    if parts.scheme not in ("https", "ssh", "file"):
        raise UsageError(
            f"git remotes of {parts.scheme!r} hold no anchors; give an https://, ssh:// or file:// URL, or a path"
        )
    has_secret = ":" in parts.netloc.rpartition("@")[0] or (parts.scheme == "https" and "@" in parts.netloc)
    if has_secret:
        raise UsageError(
            f"the git remote on {parts.hostname!r} holds a user name or password in its URL; leave it to git's "
            "credential helper or to ssh"
        )
    return "local repository" if parts.scheme == "file" else "remote"


async def append_anchor(remote: GitRemote, *, envelope: str, journal: str) -> GitAnchor:
    """Append an anchor to the chain of a remote.

    Args:
        remote: Where the chain is.
        envelope: SHA-256 of the envelope's bytes, in hexadecimal.
        journal: The head of the journal, in hexadecimal.

    Raises:
        InfrastructureFault: The remote cannot be reached or written, or sends too much; or others keep appending.
    """
    assert _DIGEST.fullmatch(envelope)
    assert _DIGEST.fullmatch(journal)
    if remote.kind == "bundle":
        raise UsageError(f"{remote.url!r} is a bundle, which cannot be appended to; name the remote itself")
    for _ in range(_RETRIES):
        async with _open(remote) as git:
            tip = await git.remote_tip()
            if tip is not None:
                await git.fetch(depth=1)
            commit = await git.write(envelope, journal, parent=tip)
            if await git.push(commit):
                return await git.read(commit)
    raise InfrastructureFault(f"{str(remote)!r} was changed by others {_RETRIES} times in a row; try again")


async def find_anchor(remote: GitRemote, *, envelope: str) -> GitAnchor:
    """Return the oldest anchor of an envelope in the chain of a remote, or of a bundle of it.

    Raises:
        AnchorMissing: There is none.
        InfrastructureFault: The remote cannot be reached, or sends too much.
    """
    assert _DIGEST.fullmatch(envelope)
    async with _open(remote) as git:
        if await git.remote_tip() is None:
            raise AnchorMissing(f"{remote.kind} {remote.url!r} has no ref {remote.ref!r}; check its name")
        await git.fetch(depth=None)
        for anchor in await git.anchors():
            if anchor.envelope == envelope:
                return anchor
    raise AnchorMissing(
        f"no anchor of the envelope sha256:{envelope} is in {str(remote)!r}; check that the file is the anchored one"
    )


@asynccontextmanager
async def _open(remote: GitRemote) -> "AsyncIterator[_AnchorGit]":
    with tempfile.TemporaryDirectory(prefix="ringfence-anchor-") as folder:
        yield _AnchorGit(remote, Path(folder))


class _AnchorGit:
    """Git on a temporary directory, for one remote."""

    def __init__(self, remote: GitRemote, directory: Path) -> None:
        self._remote = remote
        self._directory = directory
        self._object_format = "sha1"
        self._tip: str | None = None

    async def remote_tip(self) -> str | None:
        """Return the commit that the remote's ref is at; None if it has no such ref."""
        words = ("ls-remote", *self._other_end("upload-pack"), "--refs", "--end-of-options")
        write_clean_git_dir(self._directory)
        listed = await self._run(*words, self._remote.url, self._remote.ref, timeout_s=_REMOTE_S)
        self._tip = None
        for line in listed.stdout.decode("utf-8", "replace").splitlines():
            found, _, name = line.partition("\t")
            if name == self._remote.ref and _ID.fullmatch(found):
                self._tip = found
        self._object_format = "sha256" if self._tip is not None and len(self._tip) == 64 else "sha1"
        write_clean_git_dir(self._directory, object_format=self._object_format)
        return self._tip

    async def fetch(self, *, depth: int | None) -> None:
        """Fetch the tip that `remote_tip` returned."""
        is_shallow = depth is not None and self._remote.kind == "remote"  # a path ignores depths
        await self._run(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"),
            *([f"--depth={depth}"] if is_shallow else []),
            *self._other_end("upload-pack"),
            *("--end-of-options", self._remote.url, f"+{self._remote.ref}:refs/anchors/tip"),
            timeout_s=_REMOTE_S,
        )

    async def write(self, envelope: str, journal: str, *, parent: str | None) -> str:
        """Create the commit of an anchor, and return its id."""
        tree = await self._run("hash-object", "-t", "tree", "-w", "--stdin")
        parents = ("-p", parent) if parent is not None else ()
        message = f"{_SUBJECT}\n\nEnvelope: sha256:{envelope}\nJournal: sha256:{journal}\n"
        words = ("commit-tree", "--no-gpg-sign", *parents, tree.stdout.decode().strip())
        return (await self._run(*words, stdin=message.encode())).stdout.decode().strip()

    async def push(self, commit: str) -> bool:
        """Push a commit without force; return False if the remote's ref was moved meanwhile."""
        done = await self._run(
            *("push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags"),
            *self._other_end("receive-pack"),
            *("--end-of-options", self._remote.url, f"{commit}:{self._remote.ref}"),
            timeout_s=_REMOTE_S,
            accept=(0, 1),
        )
        if done.exit_code == 0:
            return True
        before = self._tip
        if await self.remote_tip() != before:
            return False
        raise InfrastructureFault(f"{str(self._remote)!r} did not take the anchor: {_stderr(done)}")

    async def read(self, commit: str) -> GitAnchor:
        """Return the anchor of a commit that this process made."""
        (found,) = await self._log("--max-count=1", commit)
        return found

    async def anchors(self) -> list[GitAnchor]:
        """Return the anchors of the fetched chain, the oldest first."""
        return await self._log(
            f"--max-count={MAX_ANCHORS}", "--reverse", "--first-parent", "refs/anchors/tip"
        )

    async def _log(self, *arguments: str) -> list[GitAnchor]:
        form = "--format=%H%x00%ct%x00%B"
        listed = await self._run(
            *(
                "log",
                "-z",
                "--no-color",
                "--no-show-signature",
                "--no-notes",
                "--encoding=UTF-8",
                form,
                *arguments,
            ),
            output_limit_bytes=_SEARCH_BYTES,
        )
        fields = listed.stdout.decode("utf-8", "replace").split("\0")
        triples = zip(fields[0::3], fields[1::3], fields[2::3], strict=False)
        return [anchor for triple in triples if (anchor := _parse_commit(*triple)) is not None]

    def _other_end(self, program: str) -> tuple[str, ...]:
        """Return the option that disarms the settings and hooks of a repository on this machine."""
        if self._remote.kind != "local repository":
            return ()
        return (f"--{program}=git {_ON_LOCAL} {program}",)

    async def _run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        timeout_s: float = _LOCAL_S,
        output_limit_bytes: int = 1024**2,
        accept: tuple[int, ...] = (0,),
    ) -> ProcessResult:
        result = await run_git(
            [word for option in _OPTIONS for word in ("-c", option)] + list(arguments),
            cwd=self._directory,
            env=_environment(self._directory),
            actor=Actor.current(),
            timeout_s=timeout_s,
            stdin=stdin,
            output_limit_bytes=output_limit_bytes,
            stop_at_limit=True,
            bounds=_BOUNDS,
        )
        what = f"git {arguments[0]} with {str(self._remote)!r}"
        if (bound := reached_bound(result)) is not None:
            raise InfrastructureFault(f"{what} reached its limit of {bound} and was ended; check the remote")
        if result.exit_code not in accept:
            raise InfrastructureFault(f"{what} failed: {_stderr(result)}")
        return result


def _parse_commit(commit: str, time: str, body: str) -> GitAnchor | None:
    """Return the anchor that a commit holds; None if the commit is of another form, as anybody may have made it."""
    found = re.fullmatch(
        rf"{_SUBJECT}\n\nEnvelope: sha256:({_DIGEST.pattern})\nJournal: sha256:({_DIGEST.pattern})\n*", body
    )
    if found is None or not _ID.fullmatch(commit) or not re.fullmatch(r"[0-9]{1,12}", time):
        return None
    return GitAnchor(commit, found[1], found[2], int(time))


def _stderr(result: ProcessResult) -> str:
    lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
    return repr(" / ".join(line.strip() for line in lines[-3:])[:400])


def _environment(directory: Path) -> dict[str, str]:
    """Return the environment of the user, for credentials, without git's own variables and directories in PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    names = (
        "LC_ALL",
        "GIT_TERMINAL_PROMPT",
        "GIT_OPTIONAL_LOCKS",
        "GIT_NO_LAZY_FETCH",
        "GIT_NO_REPLACE_OBJECTS",
    )
    return {
        **kept,
        **{name: ENVIRONMENT[name] for name in (*names, "GIT_PAGER", "GIT_PROTOCOL_FROM_USER")},
        "PATH": _PATH,
        "GIT_DIR": str(directory),
        "GIT_ALLOW_PROTOCOL": "file:https:ssh",
        "GIT_AUTHOR_NAME": _AUTHOR,
        "GIT_AUTHOR_EMAIL": "ringfence@localhost",
        "GIT_COMMITTER_NAME": _AUTHOR,
        "GIT_COMMITTER_EMAIL": "ringfence@localhost",
    }
