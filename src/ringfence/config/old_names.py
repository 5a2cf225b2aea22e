"""The name `crew` of version 0.1, which version 0.2 still accepts for `fleet`. Version 0.3 will not accept it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from ringfence.config.document import Document
from ringfence.errors import ConfigurationError

OLD_KEY: Final = "crew"
"""The old name of the top-level key `fleet`."""
_NEW_KEY = "fleet"
_OLD_DATABASE, _NEW_DATABASE = "crew.db", "fleet.db"


def with_new_names(document: Document) -> Document:
    """Return a fleet's file with its old key renamed; positions remain those in the file.

    Raises:
        ConfigurationError: The file has both keys.
    """
    if OLD_KEY not in document.values:
        return document
    if _NEW_KEY in document.values:
        place = document.place((OLD_KEY,), of_key=True)
        raise ConfigurationError(
            f"`{OLD_KEY}` is the old name of `{_NEW_KEY}`, and the file has both; move its values to `{_NEW_KEY}`",
            file=document.file,
            line=place.line,
            column=place.column,
        )
    values = {_NEW_KEY if key == OLD_KEY else key: value for key, value in document.values.items()}
    places, key_places = (
        found | {(_NEW_KEY, *path[1:]): place for path, place in found.items() if path[:1] == (OLD_KEY,)}
        for found in (document.places, document.key_places)
    )
    return replace(document, values=values, places=places, key_places=key_places)


def old_names_in(document: Document) -> Iterator[str]:
    """Yield a notice if a fleet's file has the old key."""
    place = document.key_places.get((OLD_KEY,))
    if place is not None:
        yield (
            f"{document.file}:{place.line}:{place.column}: `{OLD_KEY}` is called `{_NEW_KEY}` now; this version reads "
            "it, the next one does not"
        )


def fleet_database(folder: Path) -> Path:
    """Return the file of a fleet's database; that of version 0.1 if only that exists."""
    old, new = folder / _OLD_DATABASE, folder / _NEW_DATABASE
    return old if old.exists() and not new.exists() else new


def rename_database(folder: Path) -> str | None:
    """Rename a fleet's database of version 0.1, unless a process has it open.

    Args:
        folder: The fleet's state directory. The caller holds the daemon's lock.

    Returns:
        A notice if the database was renamed or could not be renamed; None if there was none.
    """
    old, new = folder / _OLD_DATABASE, folder / _NEW_DATABASE
    if not old.exists():
        return None
    if new.exists():
        return f"{str(old)!r} is ignored, because {new.name!r} exists; remove it if you do not need it"
    import sqlite3  # only the daemon needs it, while every command imports this module

    try:
        with closing(sqlite3.connect(old, timeout=0.0, isolation_level=None)) as link:
            # Only a sole connection can leave WAL mode. The database is then a single file while the lock is held.
            link.execute("PRAGMA journal_mode = DELETE")
            link.execute("BEGIN EXCLUSIVE")
            old.rename(new)
    except sqlite3.Error as exc:
        return f"{str(old)!r} is used as it is and was not renamed to {new.name!r}: {exc}"
    locks = old.with_name(f"{old.name}.executors")
    if locks.is_dir():
        locks.rename(new.with_name(f"{new.name}.executors"))
    return f"the fleet's database {str(old)!r} was renamed to {new.name!r}"
