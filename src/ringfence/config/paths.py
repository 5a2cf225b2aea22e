"""Where ringfence keeps its things: XDG directories, never the workspace (an agent could edit them)."""

import os
import stat
from pathlib import Path

from ringfence.errors import InfrastructureFault, PolicyRefused, next_step
from ringfence.filesystem import replace_file

_APP = "ringfence"


def state_dir() -> Path:
    """Runs, keys, checkpoints: `$RINGFENCE_STATE_DIR`, else `$XDG_STATE_HOME/ringfence`.

    Raises:
        PolicyRefused: Others can write there.
    """
    override = os.environ.get("RINGFENCE_STATE_DIR")
    if override:
        return _ours(Path(override).absolute())
    import platformdirs

    return _ours(Path(platformdirs.user_state_dir(_APP)))


def _ours(path: Path) -> Path:
    """The directory, if nobody else can write there: he could change records, and have us talk to his processes."""
    link = _link_of_another(path)
    if link is not None:
        raise PolicyRefused(
            f"the state directory {str(path)!r} is refused: {str(link)!r} on the way to it is a link of another user; "
            "name one of your own by RINGFENCE_STATE_DIR",
            rule="state-directory",
        )
    try:
        status = path.stat()
    except OSError:
        return path  # there is none yet, or it cannot be used, which whoever uses it is told
    why = None
    if status.st_uid not in (0, os.geteuid()):
        why = f"belongs to user {status.st_uid}"
    elif status.st_mode & stat.S_IWOTH:
        why = "can be written by everybody"
    if why is not None:
        raise PolicyRefused(
            f"the state directory {str(path)!r} is refused: it {why}; name one of your own by RINGFENCE_STATE_DIR",
            rule="state-directory",
        )
    return path


def _link_of_another(path: Path) -> Path | None:
    """A link on the way to `path` that neither root nor the caller made, and that may lead elsewhere tomorrow."""
    for place in (*reversed(path.parents), path):
        try:
            status = place.lstat()
        except OSError:
            return None  # the rest is not there, or cannot be used
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            return place
    return None


def user_config_file() -> Path:
    """The user's own configuration: `$XDG_CONFIG_HOME/ringfence/ringfence.yaml`."""
    import platformdirs

    return Path(platformdirs.user_config_dir(_APP)) / "ringfence.yaml"


def make_private_dir(path: Path) -> Path:
    """Create `path` (and parents) readable by its owner only; return it.

    Raises:
        InfrastructureFault: It cannot be created.
    """
    try:
        # mkdir(parents=True) would give the parents the umask's mode.
        for directory in (*reversed(path.parents), path):
            if not directory.exists():
                directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        is_state = path.is_relative_to(state_dir())
        raise InfrastructureFault(
            f"could not make the directory {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=is_state)}"
        ) from exc
    return path


def replace_state_file(path: Path, content: bytes) -> None:
    """Write a private file of the state directory in one step, and the directories above it.

    Raises:
        InfrastructureFault: It cannot be written.
    """
    try:
        make_private_dir(path.parent)
        replace_file(path, content)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
