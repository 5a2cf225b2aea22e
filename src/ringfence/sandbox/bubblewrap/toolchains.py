"""The user's toolchains, shown read-only inside: pyenv, uv, nvm, cargo, sdkman and their like.

Only what is in this table is ever shown, never a directory because a link in the workspace points there: such
a link may have been made by whoever wants to read it. Credentials that live beside a toolchain
(`~/.cargo/credentials.toml`) are not in the table.
"""

import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from ringfence.frozen import frozen

_ROOTS = (
    ".pyenv/versions",
    ".pyenv/shims",
    ".pyenv/bin",
    ".pyenv/libexec",
    ".pyenv/plugins",
    ".pyenv/version",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".local/share/pipx",
    ".local/pipx",
    ".local/bin",
    ".local/lib/node_modules",
    ".local/share/claude/versions",
    ".npm-global/bin",
    ".npm-global/lib/node_modules",
    ".nvm/versions",
    ".fnm",
    ".local/share/fnm",
    ".volta/bin",
    ".volta/tools",
    ".bun/bin",
    ".deno/bin",
    ".cargo/bin",
    ".rustup/toolchains",
    ".rustup/settings.toml",
    ".rustup/update-hashes",
    ".sdkman/candidates",
    ".jdks",
    ".rbenv/versions",
    ".rbenv/shims",
    ".asdf/installs",
    ".asdf/shims",
    ".asdf/bin",
    ".local/share/mise/installs",
    ".local/share/mise/shims",
    "go/bin",
    ".go/bin",
    "miniconda3",
    "anaconda3",
    "miniforge3",
    ".ghcup/bin",
    ".dotnet",
)
_VARIABLES = {"PYENV_ROOT": ".pyenv", "RUSTUP_HOME": ".rustup", "RBENV_ROOT": ".rbenv", "ASDF_DIR": ".asdf"}
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/snap")
"""Directories of the system that are shown read-only as they are."""
_DEFAULT_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@frozen
class Toolchains:
    """What is shown and the environment that makes it found."""

    roots: tuple[Path, ...]
    environment: Mapping[str, str]


def _is_there(path: Path) -> bool:
    """A link is left out: what it points to is not in the table."""
    try:
        return not stat.S_ISLNK(path.lstat().st_mode)
    except OSError:
        return False


def find_toolchains(
    home: Path, search_path: str, *, hide: bool, extra: tuple[Path, ...] = (), workspace: Path | None = None
) -> Toolchains:
    """Toolchains under `home` that are installed, and a PATH of what can be seen inside.

    Args:
        home: The user's home directory.
        search_path: The user's PATH.
        hide: Show none.
        extra: Further roots (the interpreter that the guest needs).
        workspace: What of PATH lies in it (an activated venv) stays on PATH.
    """
    roots = [] if hide else [home / name for name in _ROOTS if _is_there(home / name)]
    # A home below /opt, say, is covered: what is shown of it is bound on top.
    roots = [
        root
        for root in [*roots, *extra]
        if not lies_in(str(root), SYSTEM) or lies_in(str(root), (str(home),))
    ]
    shown = (*SYSTEM, *map(str, roots), *([str(workspace)] if workspace else []))
    path = [entry for entry in search_path.split(":") if entry.startswith("/") and lies_in(entry, shown)]
    path += [entry for entry in _DEFAULT_PATH if entry not in path]
    environment = {"PATH": ":".join(dict.fromkeys(path))}
    for variable, name in _VARIABLES.items():
        if any(lies_in(str(root), (str(home / name),)) for root in roots):
            environment[variable] = str(home / name)
    return Toolchains(tuple(dict.fromkeys(roots)), environment)


def lies_in(path: str, places: Iterable[str]) -> bool:
    """Whether a path is one of these or lies below one."""
    # By text: opening a sandbox asks this hundreds of times, and pathlib made it a quarter of the host's part.
    return any(path == place or path.startswith(place + "/") for place in places)
