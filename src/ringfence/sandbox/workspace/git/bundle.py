"""Creates a bundle of the agent's commits, by git in a sandbox.

Git uses a new git directory: our own configuration, the branches as they were read on the host (`read_agent_refs`), and
the agent's object database, which is only read. So no remote, helper, hook or alias of the agent's takes effect, and
git cannot fetch a missing object: there is no remote, and no transport is allowed.
"""

import os
import re
import secrets
from collections.abc import Mapping
from typing import Protocol

from ringfence.errors import InfrastructureFault, SandboxFileError
from ringfence.frozen import frozen
from ringfence.sandbox.result import ExecResult
from ringfence.sandbox.workspace.git.layout import GitLayout, read_small
from ringfence.sandbox.workspace.git.private import PrivateGit
from ringfence.sandbox.workspace.git.refs import Refs, is_ref_name, read_agent_refs
from ringfence.sandbox.workspace.run_as import Actor

MAX_REFS = 64
BUNDLE_LIMIT_BYTES = 512 * 1024**2
NOT_TAKEN = "commits made inside were not imported"
_TIMEOUT_S = 120.0
_HEADER_LIMIT_BYTES = 1024**2
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin"
_CONFIG = """[core]
	repositoryformatversion = {version}
	bare = true
	hooksPath = /dev/null
	fsmonitor = false
	bigFileThreshold = 8m
	commitGraph = false
	multiPackIndex = false
"""
_WHICH = """set -e; umask 077; mkdir -p "$1/refs"; printf %s "$2" >"$1/config"
printf '%s\\n' 'ref: refs/heads/none' >"$1/HEAD"
exec git cat-file '--batch-check=%(objecttype) %(objectname)'"""
"""Make the git directory `$1` with the configuration `$2`, and say what the objects on stdin are."""
_BUNDLE = """set -e; printf '%s\\n' "$2" >"$1/HEAD"; into="$1/commits.bundle"; shift 2
exec git bundle create "$into" --ignore-missing "$@" --stdin"""
"""Bundle what the further arguments name, with HEAD at `$2`; what stdin names is left out."""


class Inside(Protocol):
    """The part of a `Sandbox` that is used here."""

    async def run(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes = b"",
        output_limit_bytes: int = 1_000_000,
    ) -> ExecResult:
        """Run a command."""

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file inside."""

    async def read_file(self, path: str, *, limit_bytes: int) -> bytes:
        """Read a file inside."""


async def make_bundle(
    sandbox: Inside, private: PrivateGit, layout: GitLayout
) -> tuple[bytes | None, list[str]]:
    """Create a bundle of the agent's new commits inside the sandbox.

    Args:
        sandbox: Has the private git directory in place.
        private: The git directory that the agent had.
        layout: The user's repository, which the private one was made of.

    Returns:
        The bundle; None if there are no new commits, or it could not be made. And notes for the user.
    """
    base = private.refs
    id_length = 64 if private.object_format == "sha256" else 40
    now = await Actor.current().call(lambda: read_agent_refs(private.directory, id_length))
    tips = _new_tips(now, base)
    if not tips:
        # What could not be read held no commits, or commits that are lost now: the user should know of it.
        return None, list(now.notes)
    notes = list(now.notes)
    if len(tips) > MAX_REFS:
        notes.append(f"{len(tips)} branches were made inside; the first {MAX_REFS} are imported")
        tips = dict(list(tips.items())[:MAX_REFS])
    rebuilt = f"/tmp/ringfence-{secrets.token_hex(8)}"  # noqa: S108 - inside the sandbox
    try:
        shallow = await Actor.current().call(lambda: read_small(layout.common, b"shallow"))
        if shallow is not None:
            await sandbox.write_file(f"{rebuilt}/shallow", shallow)
        found = await _commits_among(sandbox, rebuilt, private, tips)
        left_out = [name for name in tips if name not in found]
        notes += [f"{name!r} leads to no commit and was not imported" for name in left_out]
        if not found:
            return None, notes
        return await _bundled(sandbox, rebuilt, private, found), notes
    except (SandboxFileError, InfrastructureFault) as exc:
        return None, [*notes, f"{NOT_TAKEN}: {exc}"]
    except _NothingNew:
        return None, notes


class _NothingNew(Exception):
    """All commits are the user's."""


def _new_tips(now: Refs, base: Refs) -> dict[str, str]:
    """Branches that are new or were moved, and a HEAD that is on none of them."""
    heads = {name: tip for name, tip in now.direct.items() if name.startswith("refs/heads/")}
    tips = {name: tip for name, tip in sorted(heads.items()) if base.direct.get(name) != tip}
    head = now.head_commit()
    if head is not None and head not in {*heads.values(), *base.direct.values(), base.head_commit()}:
        tips["HEAD"] = head
    return tips


def _environment(rebuilt: str, private: PrivateGit) -> dict[str, str]:
    return {
        "PATH": _PATH,
        "HOME": "/nonexistent",
        "XDG_CONFIG_HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_DIR": rebuilt,
        "GIT_OBJECT_DIRECTORY": str(private.inside / "objects"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }


async def _commits_among(
    sandbox: Inside, rebuilt: str, private: PrivateGit, tips: Mapping[str, str]
) -> dict[str, str]:
    """Those of the tips that are commits, as far as they are there."""
    config = _CONFIG.format(version=0 if private.object_format == "sha1" else 1)
    if private.object_format != "sha1":
        config += f"[extensions]\n\tobjectformat = {private.object_format}\n"
    told = await sandbox.run(
        ["/bin/sh", "-c", _WHICH, "sh", rebuilt, config],
        stdin="".join(f"{tip}\n" for tip in tips.values()).encode(),
        env=_environment(rebuilt, private),
        cwd="/",
        timeout_s=_TIMEOUT_S,
    )
    if not told.ok:
        raise InfrastructureFault(_why(told))
    commits = {
        name
        for kind, _, name in (line.partition(" ") for line in told.stdout.splitlines())
        if kind == "commit"
    }
    return {name: tip for name, tip in tips.items() if tip in commits}


async def _bundled(sandbox: Inside, rebuilt: str, private: PrivateGit, tips: Mapping[str, str]) -> bytes:
    packed = Refs(b"", {name: tip for name, tip in tips.items() if name != "HEAD"}, {})
    await sandbox.write_file(f"{rebuilt}/packed-refs", packed.packed())
    what = [*(["--branches"] if packed.direct else []), *(["HEAD"] if "HEAD" in tips else [])]
    known = {*private.refs.direct.values(), private.refs.head_commit()} - {None}
    made = await sandbox.run(
        ["/bin/sh", "-c", _BUNDLE, "sh", rebuilt, tips.get("HEAD", "ref: refs/heads/none"), *what],
        stdin="".join(f"^{commit}\n" for commit in sorted(map(str, known))).encode(),
        env=_environment(rebuilt, private),
        cwd="/",
        timeout_s=_TIMEOUT_S,
    )
    if not made.ok:
        if "empty bundle" in made.stderr:
            raise _NothingNew
        raise InfrastructureFault(_why(made))
    return await sandbox.read_file(f"{rebuilt}/commits.bundle", limit_bytes=BUNDLE_LIMIT_BYTES)


def _why(result: ExecResult) -> str:
    if result.ended_by == "timeout":
        return f"git did not finish bundling them within {_TIMEOUT_S:g} s"
    return repr(result.stderr.strip()[-300:])


@frozen
class Bundle:
    """A bundle, its header read."""

    heads: dict[str, str]
    """Branches to import, HEAD among them, at most `MAX_REFS`; and the object of each."""
    pack: bytes


def parse_bundle(bundle: bytes, object_format: str) -> Bundle:
    """Read a bundle's header; refs that are no branches, or have names git would not take, are left out.

    Raises:
        InfrastructureFault: It is no bundle of the kind we asked for.
    """
    header, separator, pack = bundle.partition(b"\n\n")
    signature, *lines = header[:_HEADER_LIMIT_BYTES].split(b"\n")
    allowed = {b"@object-format=" + object_format.encode()}
    capabilities = {line for line in lines if line.startswith(b"@")}
    if not separator or signature not in {b"# v2 git bundle", b"# v3 git bundle"} or capabilities - allowed:
        raise InfrastructureFault(
            f"the bundle from the sandbox has an unexpected header {signature[:80]!r}, not that of a git bundle with "
            f"{object_format}; no commits were imported"
        )
    is_id = re.compile(r"[0-9a-f]{64}" if object_format == "sha256" else r"[0-9a-f]{40}")
    heads: dict[str, str] = {}
    for line in lines:
        tip, _, name = os.fsdecode(line).partition(" ")
        is_branch = name.startswith("refs/heads/") and name != "refs/heads/HEAD" and is_ref_name(name)
        if is_id.fullmatch(tip) and (is_branch or name == "HEAD") and len(heads) < MAX_REFS:
            heads[name] = tip
    return Bundle(heads, pack)
