"""Pytest for sandboxes, without the plugins that happen to be installed beside it.

To import those takes a second at each start of pytest, four times as long as pytest itself.
"""

import shutil
from pathlib import Path

import pytest

_NAMES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")


def copy_pytest(target: Path) -> Path:
    """Copy pytest, what it needs and their bytecode to a new directory, which is returned."""
    source = Path(pytest.__file__).parents[1]
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir() and path.name.partition("-")[0] in _NAMES:
            shutil.copytree(path, target / path.name)
        elif path.name in _NAMES:
            shutil.copy2(path, target)
    return target
