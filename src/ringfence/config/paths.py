"""Where ringfence keeps its things: XDG directories, never the workspace (an agent could edit them)."""

import os
from pathlib import Path

_APP = "ringfence"


def state_dir() -> Path:
    """Runs, keys, checkpoints: `$RINGFENCE_STATE_DIR`, else `$XDG_STATE_HOME/ringfence`."""
    override = os.environ.get("RINGFENCE_STATE_DIR")
    if override:
        return Path(override).absolute()
    import platformdirs

    return Path(platformdirs.user_state_dir(_APP))


def user_config_file() -> Path:
    """The user's own configuration: `$XDG_CONFIG_HOME/ringfence/ringfence.yaml`."""
    import platformdirs

    return Path(platformdirs.user_config_dir(_APP)) / "ringfence.yaml"


def make_private_dir(path: Path) -> Path:
    """Create `path` (and parents) readable by its owner only; return it."""
    # mkdir(parents=True) would give the parents the umask's mode.
    for directory in (*reversed(path.parents), path):
        if not directory.exists():
            directory.mkdir(mode=0o700, exist_ok=True)
    return path
