"""Where a client's native program is on this host. What npm puts on PATH is a link or a script that leads to it.

Nothing of the workspace is ever taken, whatever PATH says: an agent may have put it there.
"""

import os
import re
import stat
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ringfence.runtime.client.seen import ClientName

_PACKAGES = {"claude": "@anthropic-ai/claude-code", "codex": "@openai/codex"}
_NATIVE = {"claude": ("claude",), "codex": ("vendor/*/bin/codex",)}
"""The program, in npm's package for a platform."""
_PLACES = (
    ".local/bin",
    ".local/lib/node_modules/.bin",
    ".npm-global/bin",
    ".bun/bin",
    ".volta/bin",
    ".claude/local",
    ".claude/local/node_modules/.bin",
)
_SYSTEM = ("/usr/local/bin", "/usr/bin", "/opt/agents/node_modules/.bin")
_VERSIONED = (".nvm/versions/node/*/bin", ".local/share/fnm/node-versions/*/installation/bin")
_SHIM = re.compile(r"""["' ]\$\{?basedir\}?/((?:\.\./)*[^"'\s$]{1,300}?\.(?:c?js|exe))["']""")
_SHIM_BYTES = 16 * 1024
_MAGIC = b"\x7fELF"


def native_programs(
    client: ClientName, *, search_path: str, home: Path, workspace: Path | None
) -> Iterator[Path]:
    """Native programs of a client, those of PATH first.

    Args:
        client: Which.
        search_path: PATH.
        home: The user's home directory.
        workspace: Nothing in it is taken.
    """
    folders = [Path(entry) for entry in search_path.split(":") if entry.startswith("/")]
    folders += [home / name for name in _PLACES]
    folders += [folder for pattern in _VERSIONED for folder in sorted(home.glob(pattern), reverse=True)]
    found: dict[Path, None] = {}
    for folder in dict.fromkeys([*folders, *map(Path, _SYSTEM)]):
        program = native_of(client, folder / client)
        if program is not None:
            found[program] = None
    bundled = _bundled() if client == "claude" else None
    if bundled is not None:
        found[bundled] = None
    for program in found:
        if workspace is None or not lies_in(program, workspace):
            yield program


def native_of(client: ClientName, path: Path) -> Path | None:
    """The native program that `path` is or leads to; None if there is none."""
    try:
        real = Path(os.path.realpath(path, strict=True))
        head = _head(real)
    except (OSError, ValueError):
        return None
    if head.startswith(_MAGIC):
        return _beside(client, real) or real
    beside = _beside(client, real)
    if beside is not None:
        return beside
    shim = _SHIM.search(head.decode("utf-8", "replace")) if head.startswith(b"#!") else None
    return _beside(client, Path(os.path.realpath(path.parent / shim[1]))) if shim is not None else None


def _beside(client: ClientName, real: Path) -> Path | None:
    """The program of npm's package for this platform, where `real` is part of the package that leads to it."""
    package = next((above for above in real.parents if _is_package(above, _PACKAGES[client])), None)
    if package is None:
        return None
    scope, name = _PACKAGES[client].split("/")
    roots = (package / "node_modules" / scope, package.parent)
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    for root in roots:
        for pattern in _NATIVE[client]:
            for program in sorted(root.glob(f"{name}-linux-{machine}/{pattern}")):
                if _head(program).startswith(_MAGIC):
                    return program
    return None


def _is_package(folder: Path, name: str) -> bool:
    return str(folder).endswith(f"/node_modules/{name}")


def _bundled() -> Path | None:
    """The program that comes with the SDK for Python; the SDK is not imported."""
    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    return native_of("claude", Path(spec.origin).parent / "_bundled" / "claude")


def _head(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):
        return b""
    with path.open("rb") as file:
        return file.read(_SHIM_BYTES)


def lies_in(path: Path, folder: Path) -> bool:
    """Whether a path is below a folder, links in either of them followed."""
    ways = (path, Path(os.path.realpath(path)))
    return any(way.is_relative_to(folder) or way.is_relative_to(os.path.realpath(folder)) for way in ways)
