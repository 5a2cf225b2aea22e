"""Which version a client's program is. It is asked once for each file, and remembered."""

import json
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import ConfigurationError, InfrastructureFault
from ringfence.filesystem import replace_file
from ringfence.process import run_process
from ringfence.runtime.client.base import Client

_VERSION = re.compile(r"\b(\d{1,6}(?:\.\d{1,6}){1,3})")
_TIMEOUT_S = 30.0
_OUTPUT_BYTES = 4096
_REMEMBERED = 64
_NOWHERE = "/dev/null/none"
"""A home that nobody can make, not even root: what tells its version leaves nothing, and reads nothing of yours."""


def is_trusted(program: Path) -> bool:
    """Whether a program may be started on the host: nobody but this user and root can have made it what it is."""
    status = program.stat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH


async def version_of(program: Path) -> str:
    """What a program on this host says of its version.

    Raises:
        ConfigurationError: It says none, or cannot be started.
    """
    key = _key(program)
    known = _known()
    if key in known:
        return known[key]
    version = read_version(await _asked(program))
    if version is None:
        raise ConfigurationError(f"{str(program)!r} says no version; see whether `{program} --version` works")
    _remember({**known, key: version})
    return version


def read_version(text: str) -> str | None:
    """The version in what `--version` prints."""
    found = _VERSION.search(text)
    return found[1] if found is not None else None


def check_version(client: Client, version: str, *, path: str, force: bool) -> None:
    """See that a version is one that this release was tried with.

    Raises:
        ConfigurationError: It is not, and `force` is False.
    """
    oldest, newest = client.tested
    if force or _parts(oldest) <= _parts(version) <= _parts(newest):
        return
    known = oldest if oldest == newest else f"{oldest} to {newest}"
    raise ConfigurationError(
        f"{client.title} {version} ({path!r}) was not tried with this release of ringfence, which knows {known}; "
        f"use --force to try it, or install a known one: {client.install}"
    )


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


async def _asked(program: Path) -> str:
    env = {"PATH": "/usr/bin:/bin", **dict.fromkeys(("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"), _NOWHERE)}
    try:
        done = await run_process(
            [program, "--version"], env=env, timeout_s=_TIMEOUT_S, output_limit_bytes=_OUTPUT_BYTES
        )
    except InfrastructureFault as exc:
        raise ConfigurationError(f"{str(program)!r} cannot be started: {exc}") from exc
    return done.stdout.decode("utf-8", "replace") if done.ok else ""


def _key(program: Path) -> str:
    status = program.stat()
    return f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}:{status.st_size}"


def _file() -> Path:
    return state_dir() / "client-versions.json"


def _known() -> dict[str, str]:
    try:
        read: Any = json.loads(_file().read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(read, dict):
        return {}
    return {
        key: value for key, value in read.items() if isinstance(value, str) and read_version(value) == value
    }


def _remember(versions: dict[str, str]) -> None:
    """For the next time; where it cannot be written it is asked again."""
    newest = dict(list(versions.items())[-_REMEMBERED:])
    with suppress(OSError, InfrastructureFault):
        make_private_dir(state_dir())
        replace_file(_file(), json.dumps(newest).encode())
