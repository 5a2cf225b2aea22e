"""Files that an engine on this machine reads: a sandbox's user and hosts."""

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.sandbox.docker.create import HOME

_LOOPBACK = ("127.0.0.1", "localhost", "ringfence")
_ROOT = "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
_NOBODY = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"


def account_files(uid: int, gid: int, *, names: Sequence[str] = ()) -> dict[str, Path]:
    """Host files by their place inside, for an engine that sees our files; made on first use, never changed.

    Args:
        uid: The sandbox's user.
        gid: His group.
        names: Further names of the loopback inside.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    hosts = f"{' '.join((*_LOOPBACK, *names))}\n::1 localhost\n"
    texts = {
        "hosts": hosts,
        "passwd": f"{_ROOT}agent:x:{uid}:{gid}::{HOME}:/bin/bash\n{_NOBODY}",
        "group": f"root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n",
    }
    suffix = f"-{hashlib.sha256(hosts.encode()).hexdigest()[:16]}" if names else ""
    folder = state_dir() / "docker" / "etc" / f"{uid}-{gid}{suffix}"
    return {f"/etc/{name}": _kept(folder / name, text) for name, text in texts.items()}


def _kept(file: Path, text: str) -> Path:
    """A file with this text; one that is there already is not written again, for it may be mounted."""
    try:
        if not file.is_file() or file.read_text() != text:
            make_private_dir(file.parent)
            fresh = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
            fresh.write_text(text)
            fresh.chmod(0o444)
            fresh.replace(file)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(file)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
    return file
