"""Paths in a fleet's files: relative to the file that says them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.config.layer import Merged

_SCRIPTED = "scripted:"


def resolve_paths(merged: Merged, file: Path) -> None:
    """Make paths absolute, in place; an agent without a place works where its file is."""
    values = merged.values
    if values.get("workspace") is None and values.get("repository") is None:
        values["workspace"] = str(file.parent.absolute())
    _resolve(merged, values, "workspace", ("workspace",))
    for name, trigger in _mappings(values.get("triggers")):
        _resolve(merged, trigger, "path", ("triggers", name, "path"))
    for section, key in (("run", "output_schema"), ("client", "path")):
        for _, below in _mappings({section: values.get(section)}):
            _resolve(merged, below, key, (section, key))
    for _, run in _mappings({"run": values.get("run")}):
        _resolve_script(merged, run)


def _resolve(merged: Merged, values: dict[str, Any], key: str, path: KeyPath) -> None:
    said = values.get(key)
    origin = merged.origin(path)
    if isinstance(said, str) and said and origin.file is not None and "\0" not in said:
        values[key] = os.path.normpath(origin.file.parent.absolute() / Path(said).expanduser())


def _resolve_script(merged: Merged, run: dict[str, Any]) -> None:
    """A model that is a script is a file, too."""
    said = run.get("model")
    file = merged.origin(("run", "model")).file
    if isinstance(said, str) and said.startswith(_SCRIPTED) and said != _SCRIPTED and file is not None:
        run["model"] = _SCRIPTED + os.path.normpath(
            file.parent.absolute() / Path(said.removeprefix(_SCRIPTED)).expanduser()
        )


def _mappings(values: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in (values if isinstance(values, dict) else {}).items():
        if isinstance(value, dict):
            yield key, value
