"""Renders a converted fleet as configuration files, with the notes as comments."""

import os
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from ruamel.yaml import YAML

from ringfence.config.document import FILE_LIMIT_BYTES
from ringfence.errors import UsageError
from ringfence.fleet.herdctl.conversion import Conversion, ConvertedFleet, ConvertedSettings, Note
from ringfence.fleet.herdctl.reader import escape

_WIDTH = 110
_ORDER = ("description", "prompt", "workspace", "run", "sandbox", "limits", "tools", "client", "secrets")


def render_files(conversion: Conversion, output: Path) -> dict[Path, str]:
    """Return the texts of the files to write, `output` first. Each nested fleet has its own file beside it.

    Raises:
        UsageError: A file would be larger than a configuration may be.
    """
    output = output.absolute()
    texts: dict[Path, str] = {}
    for prefix, fleet in conversion.top.walk():
        file = _file(output, prefix)
        notes = [note for note in conversion.notes if _concerns(note, fleet, is_top=not prefix)]
        texts[file] = _header(fleet, conversion, notes) + _yaml(_values(fleet, prefix, output))
        if len(texts[file].encode()) > FILE_LIMIT_BYTES:
            raise UsageError(
                f"{str(file)!r} would be larger than {FILE_LIMIT_BYTES} bytes; use herdctl's file unchanged: "
                f"`ringfence fleet up --file {conversion.file.name}`"
            )
    return texts


def _file(output: Path, prefix: tuple[str, ...]) -> Path:
    # Names contain no dots, so the files of different fleets have different names.
    return output.with_name(".".join((output.stem, *prefix)) + output.suffix) if prefix else output


def _concerns(note: Note, fleet: ConvertedFleet, *, is_top: bool) -> bool:
    files = {fleet.document.file, *(settings.root.file for settings in fleet.agents.values())}
    return note.origin.file in files or (is_top and note.key == ".env")


def _values(fleet: ConvertedFleet, prefix: tuple[str, ...], output: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if fleet.settings.values:
        values["fleet"] = fleet.settings.values
    if fleet.nested:
        values["include"] = [
            {"file": _file(output, (*prefix, each.name or "")).name, "name": each.name}
            for each in fleet.nested
        ]
    values["agents"] = {name: _agent(settings, output.parent) for name, settings in fleet.agents.items()}
    return values


def _agent(settings: ConvertedSettings, directory: Path) -> dict[str, Any]:
    """Return an agent's settings for a file in `directory`; its workspace stays the same directory."""
    workspace = settings.values.get("workspace")
    origin = settings.origins.get(("workspace",), settings.root)
    if workspace is None or not str(workspace).startswith(("/", "~", "${")):
        assert origin.file is not None
        base = Path(os.path.normpath(origin.file.parent.absolute()))
        workspace = os.path.normpath(Path(escape(str(base))) / (workspace or "."))
        if base.is_relative_to(directory) and Path(workspace).is_relative_to(directory):
            workspace = str(Path(workspace).relative_to(directory))
    values = {**settings.values, "workspace": workspace}
    return {key: values[key] for key in sorted(values, key=_rank)}


def _rank(key: str) -> int:
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


def _header(fleet: ConvertedFleet, conversion: Conversion, notes: list[Note]) -> str:
    """Return the comment at the top of a file. No text of a note can end the comment."""
    base = conversion.file.parent
    lines = [f"Converted from herdctl's {os.path.relpath(fleet.document.file, base)}."]
    if notes:
        lines.append("These keys are not converted unchanged:")
    for note in notes:
        file = note.origin.file and os.path.relpath(note.origin.file, base)
        line = f":{note.origin.line}" if note.origin.line else ""
        lines.append(f"  {note.key} ({file}{line}): {note.text}")
    printable = ["".join(letter if letter.isprintable() else "?" for letter in line) for line in lines]
    return "".join(f"# {part}\n" for line in printable for part in _wrapped(line)) + "\n"


def _wrapped(line: str) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return wrap(line, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
