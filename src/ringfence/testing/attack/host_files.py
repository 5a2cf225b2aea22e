"""Attacks that read the host's files: homes, secrets, state, environment."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.testing.attack.attack import Attack, Scene, Verdict, probe_command, run_probe, verdict_of

_GROUP = "host files"

_SENSITIVE = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".gitconfig"),
    *(".config", ".password-store", ".pki", ".mozilla", ".thunderbird", ".bash_history", ".zsh_history"),
    *(
        ".python_history",
        ".npmrc",
        ".pypirc",
        ".claude",
        ".claude.json",
        ".codex",
        ".terraform.d",
        ".vault-token",
    ),
    *(".local/share/keyrings", ".cargo/credentials.toml", ".m2/settings.xml", ".gem/credentials"),
)

_TOLD = """
for path in FACTS["paths"]:
    try:
        with open(path, "rb") as file:
            file.read(1)
        status = os.stat(path)
        print(json.dumps([path, status.st_size, status.st_ctime_ns]))
    except OSError:
        pass
end(True, "told")
"""

_READ = """
for path in FACTS["paths"]:
    try:
        with open(path, "rb") as file:
            data = file.read(4096)
        end(False, "read %s (%d bytes)" % (path, len(data)))
    except IsADirectoryError:
        try:
            names = os.listdir(path)
        except OSError:
            continue
        if names:
            end(False, "listed %s (%d entries)" % (path, len(names)))
    except OSError:
        pass
end(True, "%d paths: none can be read" % len(FACTS["paths"]))
"""

_OTHERS = """
found = []
own = tuple(one.rstrip("/") + "/" for one in (os.path.expanduser("~"), FACTS["workspace"], *FACTS["shown"]))
for top in ("/root", "/home", "/var", "/srv", "/mnt", "/media", "/run", "/boot", "/snap", "/data"):
    for path, folders, files in os.walk(top):
        folders[:] = [one for one in folders if not (path + "/" + one + "/").startswith(own)]
        for name in files:
            file = os.path.join(path, name)
            if os.path.isfile(file) and os.access(file, os.R_OK) and not (file + "/").startswith(own):
                found.append(file)
        if len(found) > 50:
            break
for file in found:
    status = os.stat(file)
    print(json.dumps([file, status.st_size, status.st_ctime_ns]))
end(True, "told")
"""

_ENVIRONMENT = """
secret = (FACTS["left"] + FACTS["right"]).encode()
mine = b"\\0".join(key + b"=" + value for key, value in os.environb.items())
if secret in mine:
    end(False, "the host's environment is ours")
for name in os.listdir("/proc"):
    try:
        with open("/proc/" + name + "/environ", "rb") as file:
            if secret in file.read():
                end(False, "found in the environment of process " + name)
    except OSError:
        pass
end(True, "not visible")
"""


@contextmanager
def _planted(directory: Path) -> Iterator[Path]:
    """Create a file that any user may read; remove it afterwards."""
    file = directory / f"ringfence-canary-{secrets.token_hex(6)}"
    file.write_text("canary\n")
    file.chmod(0o644)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


async def _beside_workspace(scene: Scene) -> Verdict:
    with _planted(scene.outside) as canary:
        paths = [str(canary), str(scene.outside), f"/proc/self/cwd/../{scene.outside.name}/{canary.name}"]
        return await run_probe(scene.shared, _READ, paths=paths)


async def _home(scene: Scene) -> Verdict:
    home = Path.home()
    paths = [str(home / name) for name in _SENSITIVE]
    with _planted(home) as canary:
        return await run_probe(scene.shared, _READ, paths=[str(canary), *paths])


async def _state(scene: Scene) -> Verdict:
    directory = make_private_dir(state_dir())
    with _planted(directory) as canary:
        return await run_probe(scene.shared, _READ, paths=[str(canary), str(directory)])


async def _others(scene: Scene) -> Verdict:
    # The sandbox itself names what is visible on purpose (toolchains, extra mounts).
    shown = [str(mount.target) for mount in scene.shared.spec.mounts]
    shown += [note.rpartition(": ")[2] for note in scene.shared.facts.notes if "toolchain" in note]
    return await _none_is_the_hosts(scene, _OTHERS, shown=shown)


async def _shadow(scene: Scene) -> Verdict:
    return await _none_is_the_hosts(scene, _TOLD, paths=_SHADOW)


async def _none_is_the_hosts(scene: Scene, body: str, **facts: Any) -> Verdict:
    """The promise holds if no readable file inside is the host's; an image has its own files at the same paths."""
    result = await scene.shared.run(probe_command(scene.shared, body, **facts), timeout_s=30.0)
    verdict = verdict_of(result)
    if not verdict.held:
        return verdict
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("[")]
    theirs = [row for row in rows if scene.shared.facts.image is None or _is_the_hosts(*row)]
    if theirs:
        return Verdict(held=False, detail="readable: " + ", ".join(str(row[0]) for row in theirs[:3]))
    return Verdict(held=True, detail=f"{len(rows)} files of the image's own" if rows else "nothing of others")


def _is_the_hosts(path: str, size: int, changed_ns: int) -> bool:
    # A change time cannot be set: a copy in an image has its own, unlike the modification time.
    try:
        status = Path(path).stat()
    except OSError:
        return False
    return (status.st_size, status.st_ctime_ns) == (size, changed_ns)


async def _environment(scene: Scene) -> Verdict:
    left, right = "ringfence-secret-", secrets.token_hex(8)
    name = "RINGFENCE_ATTACK_CANARY"
    os.environ[name] = left + right
    try:
        async with scene.open_sandbox() as sandbox:
            return await run_probe(sandbox, _ENVIRONMENT, left=left, right=right)
    finally:
        del os.environ[name]


_SHADOW = [
    *(
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/shadow-",
        "/etc/sudoers",
        "/etc/sudoers.d",
        "/etc/security/opasswd",
    ),
    *("/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_rsa_key", "/etc/ssl/private"),
    *("/etc/NetworkManager/system-connections", "/etc/machine-id", "/etc/fstab", "/etc/crontab"),
    *("/etc/security/opasswd", "/etc/krb5.keytab"),
]

ATTACKS = (
    Attack("beside-workspace", _GROUP, "What lies beside the workspace cannot be read.", _beside_workspace),
    Attack("home", _GROUP, "The user's home, with keys and histories, cannot be read.", _home),
    Attack("state-directory", _GROUP, "Ringfence's records and keys cannot be read.", _state),
    Attack("shadow", _GROUP, "The system's secrets under /etc cannot be read.", _shadow),
    Attack("other-users", _GROUP, "Nothing of other users or of services can be read.", _others),
    Attack(
        "host-environment", _GROUP, "The host's environment is not visible.", _environment, needs_own=True
    ),
)
"""All attacks, in the order of the report."""
