"""Locations of configuration and state: XDG directories, never the workspace, which agents can edit."""

import os
import stat
from pathlib import Path

from ringfence.errors import InfrastructureFault, PolicyRefused, next_step
from ringfence.filesystem import replace_file

_APP = "ringfence"


def state_dir() -> Path:
    """Return the directory of runs, keys and checkpoints.

    It is `$RINGFENCE_STATE_DIR`, else `$XDG_STATE_HOME/ringfence`.

    Raises:
        PolicyRefused: Another user can write to the directory.
    """
    override = os.environ.get("RINGFENCE_STATE_DIR")
    if override:
        return _check_state_dir(Path(override).absolute())
    import platformdirs

    return _check_state_dir(Path(platformdirs.user_state_dir(_APP)))


def _check_state_dir(path: Path) -> Path:
    """Refuse a directory to which another user can write, who could change records or replace sockets."""
    link = _link_of_another(path)
    if link is not None:
        raise PolicyRefused(
            f"the state directory {str(path)!r} is refused: {str(link)!r} on the way to it is a link of another user; "
            "name a directory of your own by RINGFENCE_STATE_DIR",
            rule="state-directory",
        )
    try:
        status = path.stat()
    except OSError:
        return path  # it does not exist, or cannot be used, which its users report
    fault = None
    if status.st_uid not in (0, os.geteuid()):
        fault = f"belongs to user {status.st_uid}"
    elif status.st_mode & stat.S_IWOTH:
        fault = "can be written by every user"
    if fault is not None:
        raise PolicyRefused(
            f"the state directory {str(path)!r} is refused: it {fault}; name a directory of your own by "
            "RINGFENCE_STATE_DIR",
            rule="state-directory",
        )
    return path


def _link_of_another(path: Path) -> Path | None:
    """Return a link on the way to `path` that belongs to another user, who could change its target."""
    for part in (*reversed(path.parents), path):
        try:
            status = part.lstat()
        except OSError:
            return None  # the rest of the path does not exist or cannot be used
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            return part
    return None


def user_config_file() -> Path:
    """Return the path of the user's configuration: `$XDG_CONFIG_HOME/ringfence/ringfence.yaml`."""
    import platformdirs

    return Path(platformdirs.user_config_dir(_APP)) / "ringfence.yaml"


def make_private_dir(path: Path) -> Path:
    """Create `path` and its parents, accessible by their owner only; return it.

    Raises:
        InfrastructureFault: The directory cannot be created.
    """
    try:
        # mkdir(parents=True) would create the parents with the default mode.
        for directory in (*reversed(path.parents), path):
            if not directory.exists():
                directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        is_state = path.is_relative_to(state_dir())
        raise InfrastructureFault(
            f"could not create the directory {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=is_state)}"
        ) from exc
    return path


def replace_state_file(path: Path, content: bytes) -> None:
    """Write a private file of the state directory atomically; create its parent directories.

    Raises:
        InfrastructureFault: The file cannot be written.
    """
    try:
        make_private_dir(path.parent)
        replace_file(path, content)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
