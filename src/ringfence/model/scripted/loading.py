"""Reads scripts from YAML or JSONL, with file, line and column in every complaint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ringfence.config.yaml import parse_document
from ringfence.errors import ConfigurationError
from ringfence.model.scripted.script import Script

_Location = tuple[int | str, ...]
_Place = tuple[int, int]
_SET_BY_US = ("path", "lines")


def load_script(path: Path) -> Script:
    """Read the script in `path`: JSONL (a turn per line) if it ends in `.jsonl`, else YAML.

    Raises:
        ConfigurationError: It cannot be read, or is not a script; with line and column.
    """
    try:
        content = path.read_bytes()
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise ConfigurationError(f"cannot read the script: {reason}; name a file", file=path) from exc
    return parse_script(content, path=path)


def parse_script(content: bytes | str, *, path: Path = Path("<script>")) -> Script:
    """Read a script; `path` stands in the complaints and its ending tells the format.

    Raises:
        ConfigurationError: It is not a script; with line and column.
    """
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return _from_jsonl(raw, path) if path.suffix == ".jsonl" else _from_yaml(raw, path)


def parse_embedded(text: str, *, path: Path) -> Script:
    """Read a script that stands in other text: JSON if it is that, else YAML.

    Raises:
        ConfigurationError: It is not a script; with line and column.
    """
    raw = text.encode("utf-8", "surrogatepass")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return _from_yaml(raw, path)
    if not isinstance(data, dict):
        return _from_yaml(raw, path)
    return _validated(data, path, [], lambda _, **__: (1, 1))


def _from_yaml(content: bytes, path: Path) -> Script:
    if content.lstrip().startswith(b"- "):
        raise ConfigurationError(
            "a script begins with 'turns:', the list under it", file=path, line=1, column=1
        )
    document = parse_document(content, path)

    def place(location: _Location, *, of_key: bool = False) -> _Place:
        found = document.place(location, of_key=of_key)
        return found.line, found.column

    turns = document.values.get("turns")
    count = len(turns) if isinstance(turns, list) else 0
    lines = [place(("turns", index))[0] for index in range(count)]
    return _validated(document.values, path, lines, place)


def _from_jsonl(content: bytes, path: Path) -> Script:
    turns: list[Any] = []
    lines: list[int] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            turns.append(json.loads(line.decode("utf-8")))
        except json.JSONDecodeError as exc:
            raise ConfigurationError(
                f"not JSON: {exc.msg}", file=path, line=number, column=exc.colno
            ) from exc
        except RecursionError as exc:
            raise ConfigurationError("nested too deep", file=path, line=number, column=1) from exc
        except UnicodeDecodeError as exc:
            column = exc.start + 1
            raise ConfigurationError(
                "not UTF-8; save it as UTF-8", file=path, line=number, column=column
            ) from exc
        lines.append(number)

    def place(location: _Location, *, of_key: bool = False) -> _Place:  # noqa: ARG001  # as for YAML
        index = location[1] if len(location) > 1 else 0
        return (lines[index] if isinstance(index, int) and index < len(lines) else 1), 1

    return _validated({"turns": turns}, path, lines, place)


def _validated(data: dict[str, Any], path: Path, lines: list[int], place: Callable[..., _Place]) -> Script:
    for key in _SET_BY_US:
        if key in data:
            line, column = place((key,), of_key=True)
            raise ConfigurationError(f"{key}: {_NO_SUCH_KEY}", file=path, line=line, column=column)
    try:
        script = Script.model_validate({**data, "path": path, "lines": tuple(lines)})
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        line, column = place(first["loc"], of_key=first["type"] == "extra_forbidden")
        raise ConfigurationError(_complaint(first), file=path, line=line, column=column) from exc
    for index, turn in enumerate(script.turns):
        try:
            json.dumps(turn.model_dump(), ensure_ascii=False, allow_nan=False).encode()
        except ValueError as exc:
            line, column = place(("turns", index))
            message = f"the turn cannot be sent as JSON: {exc}"
            raise ConfigurationError(message, file=path, line=line, column=column) from exc
    return script


_NO_SUCH_KEY = "no such key; see docs/reference/scripted-model.md"


def _complaint(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{where}: {_NO_SUCH_KEY}"
    message = str(error["msg"]).removeprefix("Value error, ")
    shown = "" if isinstance(error["input"], dict | list) else f", got {error['input']!r}"
    return f"{where}: {message[:1].lower()}{message[1:]}{shown}"
