"""Finds and removes groups whose sandbox died with its holder."""

import os
from pathlib import Path

from ringfence.sandbox.cgroup.group import Cgroup
from ringfence.sandbox.cgroup.hierarchy import PARENT, hierarchies


def leftovers(proc: Path = Path("/proc")) -> dict[str, Cgroup]:
    """All groups of sandboxes there are in the trees we can see, by sandbox id; living ones too."""
    found: dict[str, list[Path]] = {}
    for mount in dict.fromkeys(tree.mount for tree in hierarchies(proc)):
        for path, children, _ in os.walk(mount):
            if Path(path).name == PARENT:
                for child in children:
                    found.setdefault(child, []).append(Path(path) / child)
                children.clear()
    return {sandbox_id: Cgroup(sandbox_id, tuple(paths)) for sandbox_id, paths in found.items()}


def remove_leftovers(sandbox_ids: frozenset[str], proc: Path = Path("/proc")) -> list[str]:
    """Kill what is left in the groups of these sandboxes and remove them; return the names of those. Blocks."""
    removed = []
    for sandbox_id, group in leftovers(proc).items():
        if sandbox_id in sandbox_ids:
            group.kill()
            if group.remove():
                removed.append(f"control group {sandbox_id}")
    return removed
