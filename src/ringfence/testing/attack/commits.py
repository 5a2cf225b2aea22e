"""Attacks on the delivery of a run in a repository: what its commits and files bring to git on the host.

Each attack prepares a repository of its own as a run does, works in it with a probe, and exports the changes. The
objects are written by Python, so that the attack needs no git in the image.
"""

import os
import secrets
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.errors import RingfenceError, SandboxFileError
from ringfence.frozen import frozen
from ringfence.removal import remove_tree
from ringfence.sandbox import Placement, Sandbox
from ringfence.sandbox.registry import examine
from ringfence.sandbox.workspace.git.command import run_git
from ringfence.sandbox.workspace.open import open_workspace
from ringfence.sandbox.workspace.run import Finished, prepare
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.testing.attack.attack import Attack, CarryOut, Scene, Verdict, run_probe
from ringfence.testing.attack.workspace_files import give

_GROUP = "commits"
_PLANTED = (".envrc", ".vscode/tasks.json", ".github/workflows/planted.yml", ".husky/pre-commit")
_RUN = "attack-00000001"
_GIT_S = 60.0
_ALL_S = 100.0
_RAN = "/tmp/ringfence-ran"  # noqa: S108 -- inside
_OBJECT_MIB = 300
_NEWLINES = 12 * 1024**2

_OBJECTS = """
import hashlib, zlib
os.chdir(FACTS["workspace"])

def keep(kind, pieces, size):
    name, packer = hashlib.sha1(b"%s %d\\0" % (kind, size)), zlib.compressobj(9)
    parts = [packer.compress(b"%s %d\\0" % (kind, size))]
    for piece in pieces:
        name.update(piece)
        parts.append(packer.compress(piece))
    parts.append(packer.flush())
    place = ".git/objects/" + name.hexdigest()[:2]
    os.makedirs(place, exist_ok=True)
    with open(place + "/" + name.hexdigest()[2:], "wb") as file:
        file.write(b"".join(parts))
    return name.digest()

def tree(entries):
    folders, rows = {}, []
    for path, blob in entries.items():
        top, _, rest = path.partition("/")
        if rest:
            folders.setdefault(top, {})[rest] = blob
        else:
            rows.append((top.encode(), b"100755 " + top.encode() + b"\\0" + blob))
    for name, inner in folders.items():
        rows.append((name.encode() + b"/", b"40000 " + name.encode() + b"\\0" + tree(inner)))
    data = b"".join(row for _, row in sorted(rows))
    return keep(b"tree", [data], len(data))

def commit(entries):
    who = b"a <a@a> 1700000000 +0000"
    data = b"tree %s\\nparent %s\\nauthor %s\\ncommitter %s\\n\\nplanted\\n" % (
        tree(entries).hex().encode(), FACTS["head"].encode(), who, who)
    name = keep(b"commit", [data], len(data)).hex()
    os.makedirs(".git/refs/heads", exist_ok=True)
    with open(".git/refs/heads/planted", "w") as file:
        file.write(name + "\\n")
"""

_HIDDEN = (
    _OBJECTS
    + """
blob = keep(b"blob", [b"touch /tmp/pwned\\n"], 17)
commit({path: blob for path in FACTS["planted"]})
end(True, "committed %d files that are in no directory" % len(FACTS["planted"]))
"""
)

_LARGE = (
    _OBJECTS
    + """
piece = bytes(1 << 20)
commit({"zeros": keep(b"blob", (piece for _ in range(FACTS["mib"])), FACTS["mib"] << 20)})
end(True, "committed an object of %d MiB in some hundred kB" % FACTS["mib"])
"""
)

_STEERED = (
    _OBJECTS
    + """
commit({"file": keep(b"blob", [b"x\\n"], 2)})
with open(".git/config", "a") as file:
    file.write('[extensions]\\n\\tpartialClone = x\\n[protocol "ext"]\\n\\tallow = always\\n')
    file.write('[remote "x"]\\n\\tpromisor = true\\n\\turl = ext::touch %s\\n' % FACTS["ran"])
    file.write('[core]\\n\\tfsmonitor = touch %s\\n\\talternateRefsCommand = touch %s\\n' % (FACTS["ran"], FACTS["ran"]))
with open(".git/refs/heads/absent", "w") as file:
    file.write("0" * 39 + "7\\n")
for name in (".git/HEAD", ".git/packed-refs"):
    can(os.unlink, name)
    can(os.mkfifo, name)
end(True, "left a configuration, fifos and a ref to nothing")
"""
)

_LINES = """
with open(os.path.join(FACTS["workspace"], "newlines"), "wb") as file:
    file.write(b"\\n" * FACTS["count"])
end(True, "wrote %d lines of one byte" % FACTS["count"])
"""


@frozen
class _Outcome:
    """The result of a run in a repository."""

    said: Verdict
    work: Finished
    refs: str
    """Refs of the host's repository."""
    packs: tuple[str, ...]
    ran: bool
    """Whether anything left a mark in the sandbox that exports the commits."""


async def _in_repository(scene: Scene, body: str, **facts: object) -> _Outcome:
    token = secrets.token_hex(4)
    place = scene.workspace.parent / f"ringfence-commits-{token}"
    state = scene.workspace.parent / f"ringfence-state-{token}"
    try:
        head = await _make_repository(place, scene.workspace)
        state.mkdir(mode=0o700)
        return await _whole_run(scene, _Run(place, state, head), body, **facts)
    finally:
        for folder in (place, state):
            if folder.exists():
                await anyio.to_thread.run_sync(remove_tree, folder)


async def _make_repository(place: Path, like: Path) -> str:
    """Make a repository with one commit and with the owner of another directory; return the commit."""
    await anyio.to_thread.run_sync(_fill, place, like)
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "first")):
        await _git(place, *words)
    head = (await _git(place, "rev-parse", "HEAD")).strip()
    give(place, like)
    return head


def _fill(place: Path, like: Path) -> None:
    place.mkdir()
    place.chmod(stat.S_IMODE(like.stat().st_mode))
    (place / "file").write_text("one\n")


@frozen
class _Run:
    place: Path
    state: Path
    head: str


async def _whole_run(scene: Scene, run: _Run, body: str, **facts: object) -> _Outcome:
    """Prepare a repository as a run does, let the probe work, export its changes, and return the state after it."""
    spec = scene.shared.spec.model_copy(update={"workspace": run.place})
    opened = open_workspace(run.place, None, state=run.state, holder=None, traits=await examine(spec))
    async with opened as workspace:
        prepared = await prepare(workspace, run=_RUN, run_dir=run.state / "runs" / _RUN)
    async with Sandbox.start(spec, placement=prepared.placement) as sandbox:
        said = await run_probe(sandbox, body, timeout_s=_GIT_S, head=run.head, **facts)
    ran = False

    @asynccontextmanager
    async def export(placement: Placement) -> AsyncIterator[Sandbox]:
        nonlocal ran
        async with Sandbox.start(spec, placement=placement) as sandbox:
            yield sandbox
            ran = await _is_there(sandbox, _RAN)

    work = await prepared.deliver(export)
    packs = tuple(sorted(path.name for path in (run.place / ".git/objects/pack").iterdir()))
    return _Outcome(said, work, await _git(run.place, "for-each-ref", "refs/ringfence"), packs, ran)


async def _git(place: Path, *words: str) -> str:
    done = await run_git(
        ["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@a", *words],
        cwd=place,
        env={"HOME": "/nonexistent", "PATH": os.defpath, "GIT_CONFIG_NOSYSTEM": "1"},
        actor=Actor.current(),
        timeout_s=_GIT_S,
    )
    if not done.ok:
        raise RingfenceError(f"git {words[0]} failed: {done.stderr[-200:]!r}")
    return done.stdout.decode()


async def _is_there(sandbox: Sandbox, path: str) -> bool:
    try:
        await sandbox.read_file(path, limit_bytes=1)
    except SandboxFileError as exc:
        return exc.errno_name != "ENOENT"
    return True


async def _hidden(scene: Scene) -> Verdict:
    outcome = await _in_repository(scene, _HIDDEN, planted=_PLANTED)
    missed = sorted(set(_PLANTED) - set(outcome.work.runs_on_your_machine)) if outcome.refs else []
    if missed:
        return Verdict(held=False, detail=f"brought out and not reported: {', '.join(missed)}")
    return Verdict(outcome.said.held, f"{outcome.said.detail}; {_came(outcome, 'each was reported')}")


async def _large(scene: Scene) -> Verdict:
    outcome = await _in_repository(scene, _LARGE, mib=_OBJECT_MIB)
    if outcome.refs or outcome.packs:
        return Verdict(held=False, detail=f"it is in the host's repository: {outcome.packs}")
    return Verdict(outcome.said.held, f"{outcome.said.detail}; it was not taken over")


async def _steered(scene: Scene) -> Verdict:
    outcome = await _in_repository(scene, _STEERED, ran=_RAN)
    if outcome.ran:
        return Verdict(held=False, detail="git ran a program that the configuration names")
    return Verdict(outcome.said.held, f"{outcome.said.detail}; {_came(outcome, 'none took effect')}")


async def _lines(scene: Scene) -> Verdict:
    outcome = await _in_repository(scene, _LINES, count=_NEWLINES)
    counted = [change.path for change in outcome.work.diff.files if change.insertions]
    if counted:
        return Verdict(held=False, detail=f"git on the host compared {_NEWLINES:,} lines")
    return Verdict(outcome.said.held, f"{outcome.said.detail}; they were compared as one binary file")


def _came(outcome: _Outcome, why: str) -> str:
    if outcome.refs:
        return f"commits came out, {why}"
    return f"no commits came out: {'; '.join(outcome.work.notes)[:200]}"


def _attack(name: str, promise: str, carry_out: CarryOut) -> Attack:
    async def in_time(scene: Scene) -> Verdict:
        try:
            with anyio.fail_after(_ALL_S):
                return await carry_out(scene)
        except TimeoutError:
            return Verdict(held=False, detail=f"the run had not ended after {_ALL_S:g} s")
        except RingfenceError as exc:
            return Verdict(held=False, detail=f"the run did not end in order: {exc}")

    return Attack(name, _GROUP, promise, in_time, is_harmless=False, needs_own=True)


ATTACKS = (
    _attack("commits-hidden-files", "Files that only a commit holds are reported like all others.", _hidden),
    _attack(
        "commits-large-object", "An object that is huge unpacked does not come into the repository.", _large
    ),
    _attack("commits-configuration", "What an agent left for git delays nothing and runs nothing.", _steered),
    _attack("newlines", "A file of newlines does not take the host's memory.", _lines),
)
"""All attacks, in the order of the report."""
