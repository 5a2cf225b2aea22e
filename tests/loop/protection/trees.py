"""Trees as mappings, and what of an attempt's changes is left out."""

from collections.abc import Collection, Mapping

from ringfence.check.protected_files import Conventions, ProtectedFiles
from ringfence.check.tree import TreeEntry

Tree = Mapping[str, "bytes | TreeEntry"]


def entries(tree: Tree) -> dict[str, TreeEntry]:
    """Each file as an entry of a tree."""
    return {path: it if isinstance(it, TreeEntry) else TreeEntry(it) for path, it in tree.items()}


def protection(
    tree: Tree, conventions: Conventions, *, reported: Collection[str] = (), imported: Collection[str] = ()
) -> ProtectedFiles:
    """The protected files of a tree."""
    return ProtectedFiles(entries(tree), conventions, reported=reported, imported=imported)


def left_out(
    before: Tree,
    after: Mapping[str, "bytes | TreeEntry | None"],
    conventions: Conventions,
    *,
    reported: Collection[str] = (),
) -> dict[str, str]:
    """Which of an attempt's changes are left out, and why: `after` has what it wrote; None is deleted."""
    was = entries(before)
    now = {**was, **entries({path: it for path, it in after.items() if it is not None})}
    for path, it in after.items():
        if it is None:
            del now[path]
    protected = protection(before, conventions, reported=reported)
    changed = [path for path in sorted({*was, *now}) if was.get(path) != now.get(path)]
    reasons = {path: protected.protection_reason(path, now.get) for path in changed}
    return {path: why for path, why in reasons.items() if why is not None}
