"""A fleet that was brought over, as files of ours with the notes as comments."""

import os
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from ruamel.yaml import YAML

from ringfence.config.document import FILE_LIMIT_BYTES
from ringfence.errors import UsageError
from ringfence.fleet.herdctl.document import Brought, Level, PreparedJob
from ringfence.fleet.herdctl.note import Note, Notes
from ringfence.fleet.herdctl.reader import escaped

_WIDTH = 110
_ORDER = ("description", "prompt", "workspace", "run", "sandbox", "limits", "tools", "client", "secrets")


def texts_of(brought: Brought, notes: Notes, output: Path) -> dict[Path, str]:
    """The files to write, the one that was asked for first; fleets below have files of their own beside it.

    Raises:
        UsageError: One of them would be larger than a configuration may be.
    """
    output = output.absolute()
    found: dict[Path, str] = {}
    for prefix, level in brought.top.walk():
        file = _file(output, prefix)
        mine = [note for note in notes.items if _is_of(note, level, is_top=not prefix)]
        found[file] = _head(level, brought, mine) + _yaml(_values(level, prefix, output))
        if len(found[file].encode()) > FILE_LIMIT_BYTES:
            raise UsageError(
                f"{str(file)!r} would be larger than {FILE_LIMIT_BYTES} bytes; have herdctl's file read as it is: "
                f"`ringfence fleet up --file {brought.file.name}`"
            )
    return found


def _file(output: Path, prefix: tuple[str, ...]) -> Path:
    # Names have no dots, so that no two fleets come to one file.
    return output.with_name(".".join((output.stem, *prefix)) + output.suffix) if prefix else output


def _is_of(note: Note, level: Level, *, is_top: bool) -> bool:
    files = {level.document.file, *(made.root.file for made in level.agents.values())}
    return note.origin.file in files or (is_top and note.key == ".env")


def _values(level: Level, prefix: tuple[str, ...], output: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if level.settings.values:
        values["fleet"] = level.settings.values
    if level.below:
        values["include"] = [
            {"file": _file(output, (*prefix, each.name or "")).name, "name": each.name}
            for each in level.below
        ]
    values["agents"] = {name: _agent(made, output.parent) for name, made in level.agents.items()}
    return values


def _agent(made: PreparedJob, directory: Path) -> dict[str, Any]:
    """An agent whose paths lead to the same places from another directory."""
    said = made.values.get("workspace")
    origin = made.origins.get(("workspace",), made.root)
    if said is None or not str(said).startswith(("/", "~", "${")):
        assert origin.file is not None
        place = Path(os.path.normpath(origin.file.parent.absolute()))
        said = os.path.normpath(Path(escaped(str(place))) / (said or "."))
        if place.is_relative_to(directory) and Path(said).is_relative_to(directory):
            said = str(Path(said).relative_to(directory))
    values = {**made.values, "workspace": said}
    return {key: values[key] for key in sorted(values, key=_rank)}


def _rank(key: str) -> int:
    """The order of keys in a file: what an agent is first, then what it may do, then when it works."""
    return _ORDER.index(key) if key in _ORDER else len(_ORDER)


def _yaml(values: dict[str, Any]) -> str:
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.width = _WIDTH
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel types it as None
    writer.representer.ignore_aliases = lambda *_: True
    writer.allow_unicode = True
    stream = StringIO()
    writer.dump(values, stream)
    return stream.getvalue()


def _head(level: Level, brought: Brought, notes: list[Note]) -> str:
    where = os.path.relpath(level.document.file, brought.file.parent)
    lines = [f"Brought over from herdctl's {where}."]
    if notes:
        lines.append("What does not come over as it stands there:")
    for note in notes:
        place = note.origin.file and os.path.relpath(note.origin.file, brought.file.parent)
        position = f":{note.origin.line}" if note.origin.line else ""
        lines.append(f"  {note.key} ({place}{position}): {note.text}")
    plain = ["".join(letter if letter.isprintable() else "?" for letter in line) for line in lines]
    wrapped = [each for line in plain for each in _wrapped(line)]
    return "".join(f"# {line}\n" for line in wrapped) + "\n"


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
