"""The recorded cases: where their archives are, and where they are unpacked."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VERSION = "0.1"
"""The version of the product that wrote the state of these cases."""
RECORDED = Path(__file__).parent / VERSION
"""An archive (`CASE.tar.gz`) and the facts that its recipe noted (`CASE.json`) for each case."""
OWNER_UID = 1000
"""The user id under which the recipes ran; records name it as the owner of the workspace."""
WORKSPACES = ("project", "other")
"""The directories of a case that agents and commands worked on, relative to the directory of the case."""


def case_directory(case: str) -> Path:
    """The directory in which a case was recorded.

    Records name their workspace by its absolute path, and the product derives the names of stores and locks from it.
    Commands that touch the workspace therefore need the case in this directory; commands that only read records do not.
    """
    return Path(f"/tmp/ringfence-golden-{case}")


def case_names() -> list[str]:
    """The names of all recorded cases."""
    return sorted(path.name.removesuffix(".tar.gz") for path in RECORDED.glob("*.tar.gz"))


def read_facts(case: str) -> Mapping[str, Any]:
    """The ids and states that the recipe of a case noted."""
    facts: dict[str, Any] = json.loads((RECORDED / f"{case}.json").read_text())
    return facts


def restore_owner(directory: Path) -> None:
    """Give the workspaces of a case to the user that its records name, if the caller is root.

    Root works on a workspace with the rights of its owner, and an undo uses the owner at the time of the run.
    """
    if os.geteuid() != 0:
        return
    for workspace in filter(Path.exists, (directory / name for name in WORKSPACES)):
        for path in (workspace, *workspace.rglob("*")):
            os.chown(path, OWNER_UID, OWNER_UID, follow_symlinks=False)
