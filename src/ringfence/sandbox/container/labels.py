"""Labels of containers, volumes and images: which installation made them, for which sandbox, until when.

Things are found and removed only by all of these labels, never by a prefix of a name. A container must also have the
one name that matches its labels.
"""

import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.process import start_time

PREFIX = "ringfence."
INSTANCE = "ringfence.instance"
SANDBOX = "ringfence.sandbox"
RUN = "ringfence.run"
HOLDER = "ringfence.holder"
EXPIRES = "ringfence.expires"
IMAGE_TARGET = "ringfence.image.target"
IMAGE_NAMES = "localhost/ringfence/"
"""Prefix of the names of our own images. `localhost` is not a registry, so no one else can publish such an image."""

_LIFE_S = 7 * 86_400.0
_GRACE_S = 60.0
_FILE = "instance"


def container_name(sandbox_id: str) -> str:
    """The name of a sandbox's container, and of its volume."""
    return f"ringfence-{sandbox_id}"


def instance_id() -> str:
    """Id of this installation: one per state directory, created on first use.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    file = state_dir() / _FILE
    with suppress(FileNotFoundError):
        found = file.read_text().strip()
        if found:
            return found
    try:
        make_private_dir(file.parent)
        fresh = file.with_name(f"{_FILE}.{secrets.token_hex(4)}")
        fresh.write_text(secrets.token_hex(8))
        with suppress(FileExistsError):
            os.link(fresh, file)  # of several processes, the first wins
        fresh.unlink()
        return file.read_text().strip()
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc


def labels_for(
    sandbox_id: str, run_id: str | None, ttl_s: float | None, extra: Mapping[str, str]
) -> dict[str, str]:
    """All labels of a sandbox's containers and volumes."""
    return {
        **extra,
        INSTANCE: instance_id(),
        SANDBOX: sandbox_id,
        RUN: run_id or "",
        HOLDER: holder_of(os.getpid()),
        EXPIRES: str(int(time.time() + lifetime_s(ttl_s))),
    }


def lifetime_s(ttl_s: float | None) -> float:
    """The time after which a sandbox is over even if nobody can tell whether its holder lives.

    Args:
        ttl_s: Its time to live, after which its guest ends it; None: it has none.
    """
    return _LIFE_S if ttl_s is None else ttl_s + _GRACE_S


def holder_of(pid: int) -> str:
    """Identity of a process on this boot of this machine, distinct from a later process with the same number."""
    return f"{_boot()}:{_namespace()}:{pid}:{start_time(pid) or '?'}"


def is_over(labels: Mapping[str, str]) -> bool:
    """Whether the object with these labels is abandoned: its holder is dead, or is not visible and it expired."""
    alive = _is_alive(labels.get(HOLDER, ""))
    if alive is not None:
        return not alive
    expires = labels.get(EXPIRES, "")
    return expires.isdecimal() and int(expires) < time.time()


def _is_alive(holder: str) -> bool | None:
    """Whether a holder is running; None if that cannot be seen from here, or the label is malformed."""
    parts = holder.split(":")
    if len(parts) != 4 or not parts[2].isdecimal():
        return None
    boot, namespace, pid, started = parts
    if boot != _boot():
        return False
    if namespace != _namespace():
        return None
    return start_time(int(pid)) == started


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "?"


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return "?"
