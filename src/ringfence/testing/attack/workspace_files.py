"""Attacks that leave the workspace by links, or plant files in it that the host would execute."""

import hashlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from ringfence.errors import PolicyRefused, SandboxFileError
from ringfence.process import ProcessResult
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.workspace.git.command import run_git
from ringfence.sandbox.workspace.lock import BUSY
from ringfence.sandbox.workspace.protect.auto_executed_files import AUTO_EXECUTED_FILES
from ringfence.sandbox.workspace.protect.flags import flag
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.testing.attack.attack import Attack, Scene, Verdict, run_probe

_GROUP = "workspace"
_CANARY = "canary\n"
_INIT_S = 60.0

_THROUGH_LINKS = """
base = FACTS["workspace"]
links = list(FACTS["links"])
os.chdir(base)
for number, target in enumerate(FACTS["targets"]):
    name = "%s-%d" % (FACTS["prefix"], number)
    if can(os.symlink, target, name):
        links.append(name)
for name in links:
    for path in (name, name + "/canary", name + "/planted"):
        try:
            with open(path, "a") as file:
                file.write("changed\\n")
        except OSError:
            pass
    can(os.rename, name + "/canary", name + "/moved")
    can(os.unlink, name + "/canary")
    can(os.chmod, name, 0o777)
    can(os.link, name, "hard-" + name)
end(True, "tried %d links" % len(links))
"""

_FLIP = """
base, target = FACTS["workspace"], FACTS["target"]
os.chdir(base)
end_at = time.monotonic() + FACTS["seconds"]
while time.monotonic() < end_at:
    can(os.mkdir, "flip")
    can(os.rename, "flip", "flip-dir")
    can(os.symlink, target, "flip")
    can(os.unlink, "flip")
    can(os.rename, "flip-dir", "flip")
    try:
        for name in os.listdir("flip"):
            can(os.unlink, "flip/" + name)
    except OSError:
        pass
end(True, "flipped")
"""

_GIT = """
os.chdir(FACTS["workspace"])
done = []
def write(path, text):
    with open(path, "a") as file:
        file.write(text)
tries = {
    "hook": lambda: write(".git/hooks/post-checkout", "#!/bin/sh\\ntouch /tmp/pwned\\n"),
    "config": lambda: write(".git/config", "[core]\\n\\tfsmonitor = touch /tmp/pwned\\n\\thooksPath = .\\n"),
    "attributes": lambda: write(".git/info/attributes", "* filter=pwned\\n"),
    "alternates": lambda: write(".git/objects/info/alternates", "/\\n"),
    "head": lambda: write(".git/HEAD", "x"),
    "chmod": lambda: os.chmod(".git/config", 0o666),
    "unlink": lambda: os.unlink(".git/config"),
    "rename": lambda: os.rename(".git", "git-away"),
    "replace": lambda: os.mkdir(".git"),
    "file": lambda: write(".git", "gitdir: /tmp/elsewhere\\n"),
}
for name, action in tries.items():
    try:
        action()
        done.append(name)
    except OSError:
        pass
end(True, "done inside: " + (", ".join(done) or "nothing"))
"""

_TRUSTED = """
os.chdir(FACTS["workspace"])
changed = []
for path in FACTS["present"] + FACTS["absent"]:
    for file in (path, os.path.join(path, "planted")):
        try:
            os.makedirs(os.path.dirname(file) or ".", exist_ok=True)
            with open(file, "a") as stream:
                stream.write("changed\\n")
            changed.append(file)
        except OSError:
            pass
for path in FACTS["present"]:
    can(os.rename, path, path + ".away")
end(True, "%d changed inside" % len(changed))
"""


async def _links_before(scene: Scene) -> Verdict:
    links = {f"link-{secrets.token_hex(4)}": target for target in (scene.outside, scene.outside / "canary")}
    for name, target in links.items():
        (scene.workspace / name).symlink_to(target)
    try:
        return await _through_links(scene, list(links), [])
    finally:
        for name in links:
            (scene.workspace / name).unlink(missing_ok=True)


async def _links_after(scene: Scene) -> Verdict:
    outside = scene.outside
    up = "../" * 40
    targets = [str(outside), str(outside / "canary"), f"../{outside.name}", f"{up}{str(outside)[1:]}"]
    targets += [f"/proc/1/root{outside}", f"/proc/self/root{outside}"]
    return await _through_links(scene, [], targets)


async def _through_links(scene: Scene, links: list[str], targets: list[str]) -> Verdict:
    _plant(scene.outside)
    prefix = f"made-inside-{secrets.token_hex(4)}"
    async with scene.open_sandbox() as sandbox:
        said = await run_probe(sandbox, _THROUGH_LINKS, links=links, targets=targets, prefix=prefix)
        for name in (*links, *(f"{prefix}-{number}" for number in range(len(targets)))):
            leaked = await _by_file_calls(sandbox, name)
            if leaked:
                return Verdict(held=False, detail=leaked)
    return _intact(scene.outside) or (
        Verdict(held=True, detail=f"{said.detail}; nothing outside changed") if said.held else said
    )


async def _by_file_calls(sandbox: Sandbox, name: str) -> str | None:
    """The host's own file calls must not follow a link out of the sandbox either."""
    for path in (name, f"{name}/canary"):
        with suppress(SandboxFileError):
            if (await sandbox.read_file(path)) == _CANARY.encode():
                return f"read_file({path!r}) gave a file of the host"
    for path in (name, f"{name}/planted"):
        with suppress(SandboxFileError):
            await sandbox.write_file(path, b"changed")
    return None


async def _links_during(scene: Scene) -> Verdict:
    _plant(scene.outside)
    async with scene.open_sandbox() as sandbox, anyio.create_task_group() as tasks:

        async def flip() -> None:
            await run_probe(sandbox, _FLIP, target=str(scene.outside), seconds=2.0)
            tasks.cancel_scope.cancel()

        tasks.start_soon(flip)
        while True:
            with suppress(SandboxFileError):
                await sandbox.write_file("flip/planted", b"changed")
            with suppress(SandboxFileError):
                await sandbox.remove("flip/canary")
    return _intact(scene.outside) or Verdict(held=True, detail="nothing outside changed in 2 s of swapping")


def _plant(outside: Path) -> None:
    shutil.rmtree(outside)
    outside.mkdir()
    outside.chmod(0o777)
    (outside / "canary").write_text(_CANARY)
    (outside / "canary").chmod(0o666)


def _intact(outside: Path) -> Verdict | None:
    """Return None if nothing outside was changed."""
    names = sorted(path.name for path in outside.iterdir())
    if names != ["canary"]:
        return Verdict(held=False, detail=f"outside now holds {', '.join(names) or 'nothing'}")
    if (outside / "canary").read_text() != _CANARY:
        return Verdict(held=False, detail="the file outside was changed")
    return None


async def _git(scene: Scene) -> Verdict:
    directory = scene.workspace / ".git"
    if not directory.exists():
        made = await _make_repository(scene.workspace)
        if not made.ok:
            return Verdict(held=False, detail=f"no repository could be made: {made.stderr[-200:]!r}")
        give(directory, scene.workspace)
    before = _fingerprint(directory)
    async with scene.open_sandbox() as sandbox:
        said = await run_probe(sandbox, _GIT)
    after = _fingerprint(directory)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if changed:
        return Verdict(held=False, detail=f"the host's git directory was changed: {', '.join(changed[:5])}")
    return Verdict(said.held, f"{said.detail}; the host's git directory is as it was")


def _fingerprint(directory: Path) -> dict[str, str]:
    """Return the place of a git directory, and a digest of each file in it that the host's git acts upon."""
    status = os.lstat(directory) if os.path.lexists(directory) else None
    found = {".": f"{status.st_ino} {status.st_mode}" if status else "gone"}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_file() and (not name.startswith("objects/") or name.startswith("objects/info")):
            found[name] = f"{path.stat().st_mode} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return found


_READ_GIT = """
token, found = FACTS["token"].encode(), []
for root, folders, files in os.walk(FACTS["workspace"]):
    for name in files:
        try:
            with open(os.path.join(root, name), "rb") as file:
                found += [os.path.join(root, name)] if token in file.read() else []
        except OSError:
            pass
end(not found, "the address of a remote was read in %s" % found[0] if found else "nothing holds the remote's address")
"""


@asynccontextmanager
async def _workspace_beside(scene: Scene) -> AsyncIterator[SandboxSpec]:
    """Yield a spec like the scene's, on a workspace that no other sandbox has."""
    own = scene.workspace.parent / f"ringfence-own-{secrets.token_hex(4)}"
    own.mkdir()
    give(own, scene.workspace)
    try:
        yield scene.shared.spec.model_copy(update={"workspace": own})
    finally:
        shutil.rmtree(own, ignore_errors=True)


async def _make_repository(place: Path) -> ProcessResult:
    return await run_git(
        ["init", "-q", str(place)],
        cwd=place,
        env={"HOME": "/nonexistent", "PATH": os.defpath},
        actor=Actor.current(),
        timeout_s=_INIT_S,
    )


async def _private_git(scene: Scene) -> Verdict:
    """A repository's configuration, which may hold a token in a remote's address, cannot be read inside."""
    token = secrets.token_hex(16)
    async with _workspace_beside(scene) as spec:
        assert spec.workspace is not None
        made = await _make_repository(spec.workspace)
        if not made.ok:
            return Verdict(held=False, detail=f"no repository could be made: {made.stderr[-200:]!r}")
        with (spec.workspace / ".git" / "config").open("a") as config:
            config.write(f'[remote "origin"]\n\turl = https://user:{token}@example.com/x.git\n')
        give(spec.workspace, scene.workspace)
        async with Sandbox.open(spec) as sandbox:
            return await run_probe(sandbox, _READ_GIT, token=token)


async def _one_writer(scene: Scene) -> Verdict:
    """A second sandbox that would write to the same workspace is refused."""
    async with _workspace_beside(scene) as spec, Sandbox.open(spec):
        try:
            async with Sandbox.open(spec):
                return Verdict(held=False, detail="two sandboxes write to one workspace at once")
        except PolicyRefused as exc:
            return Verdict(exc.rule == BUSY, f"refused: {exc.rule}")


async def _trusted(scene: Scene) -> Verdict:
    """Files that the host executes by itself: existing ones are not writable, and new ones are reported."""
    paths = [entry.path for entry in AUTO_EXECUTED_FILES if entry.treatment == "read_only"]
    present, absent = paths[::2], paths[1::2]
    planted = [path for path in present if _plant_trusted(scene.workspace, path)]
    async with scene.open_sandbox() as sandbox:
        said = await run_probe(sandbox, _TRUSTED, present=planted, absent=absent)
    changed = [path for path in planted if not _is_as_planted(scene.workspace / path)]
    new = [
        path for path in absent if (scene.workspace / path).is_symlink() or (scene.workspace / path).exists()
    ]
    unreported = [path for path in new if not flag([path])]
    _remove(scene.workspace, [*paths, *(f"{path}.away" for path in paths)])
    if changed:
        return Verdict(held=False, detail=f"changed on the host: {', '.join(changed[:5])}")
    if unreported:
        return Verdict(held=False, detail=f"new and not reported: {', '.join(unreported[:5])}")
    return Verdict(said.held, f"{len(planted)} not writable, {len(new)} new ones would be reported")


def _plant_trusted(workspace: Path, path: str) -> bool:
    file = workspace / path
    if os.path.lexists(file):
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_CANARY)
    give(workspace / Path(path).parts[0], workspace)
    return True


def _is_as_planted(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and file.read_text() == _CANARY


def _remove(workspace: Path, paths: list[str]) -> None:
    for path in paths:
        file = workspace / path
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                file.unlink()


def give(top: Path, like: Path) -> None:
    """Give a tree to the owner of `like`; only root can do so, and only root needs to."""
    if os.geteuid() != 0:
        return
    owner = like.stat()
    for path in (top, *top.rglob("*")):
        os.lchown(path, owner.st_uid, owner.st_gid)


ATTACKS = (
    Attack(
        "links-before",
        _GROUP,
        "Links that were there before lead to nothing outside the workspace.",
        _links_before,
        needs_own=True,
    ),
    Attack(
        "links-after",
        _GROUP,
        "Links made inside lead nothing and nobody outside the workspace.",
        _links_after,
        needs_own=True,
    ),
    Attack(
        "links-during",
        _GROUP,
        "A directory swapped for a link while the host writes leads nothing outside.",
        _links_during,
        needs_own=True,
    ),
    Attack("git-directory", _GROUP, "The host's git directory is not touched.", _git, needs_own=True),
    Attack(
        "git-configuration",
        _GROUP,
        "What the repository's own configuration holds cannot be read.",
        _private_git,
        needs_own=True,
    ),
    Attack(
        "one-writer",
        _GROUP,
        "Two sandboxes never write to one workspace at once.",
        _one_writer,
        needs_own=True,
    ),
    Attack(
        "trusted-files",
        _GROUP,
        "Files the host runs by itself cannot be changed, new ones are reported.",
        _trusted,
        needs_own=True,
    ),
)
"""All attacks, in the order of the report."""
