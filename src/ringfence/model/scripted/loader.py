"""Reads scripts from YAML or JSONL, with file, line and column in every error."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ringfence.config.yaml import parse_document
from ringfence.errors import ConfigurationError
from ringfence.model.scripted.script import Script, Source, Turn

_Location = tuple[int | str, ...]
_Place = tuple[int, int]


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
    return _parsed(content, path)


@lru_cache(maxsize=4)
def _parsed(content: bytes, path: Path) -> Script:
    """Parse a script; cached, since a run reads its script twice, for the price and for the replies."""
    return parse_script(content, path=path)


def parse_script(content: bytes | str, *, path: Path = Path("<script>")) -> Script:
    """Read a script; errors name `path`, whose suffix determines the format.

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
    with suppress(ValueError, RecursionError):
        data = json.loads(raw)
        if isinstance(data, dict):
            return _validated(data, path, lambda _, **__: (1, 1))
    return _from_yaml(raw, path)


def _from_yaml(content: bytes, path: Path) -> Script:
    if content.lstrip().startswith(b"- "):
        raise ConfigurationError(
            "a script begins with 'turns:' or 'cases:', the list under it", file=path, line=1, column=1
        )
    document = parse_document(content, path)

    def place(location: _Location, *, of_key: bool = False) -> _Place:
        found = document.place(location, of_key=of_key)
        return found.line, found.column

    return _validated(document.values, path, place)


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

    return _validated({"turns": turns}, path, place)


def _validated(data: dict[str, Any], path: Path, place: Callable[..., _Place]) -> Script:
    try:
        script = Script.model_validate(data)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        line, column = place(first["loc"], of_key=first["type"] == "extra_forbidden")
        raise ConfigurationError(_error_text(first), file=path, line=line, column=column) from exc
    for location, problem in (*_unsendable(script), *_unreachable(script)):
        line, column = place(location)
        raise ConfigurationError(problem, file=path, line=line, column=column)
    lines = tuple(place(location)[0] for location, _ in _turns(script))
    case_lines = tuple(place(("cases", index))[0] for index in range(len(script.cases)))
    return script.from_source(Source(path, lines, case_lines))


def _turns(script: Script) -> Iterator[tuple[_Location, Turn]]:
    for index, turn in enumerate(script.turns):
        yield ("turns", index), turn
    for number, case in enumerate(script.cases):
        for index, turn in enumerate(case.turns):
            yield ("cases", number, "turns", index), turn


def _unsendable(script: Script) -> Iterator[tuple[_Location, str]]:
    for location, turn in _turns(script):
        try:
            json.dumps(turn.model_dump(), ensure_ascii=False, allow_nan=False).encode()
        except ValueError as exc:
            yield location, f"the turn cannot be sent as JSON: {exc}"


def _unreachable(script: Script) -> Iterator[tuple[_Location, str]]:
    """Yield the cases after one that fits everything that they fit."""
    for number, case in enumerate(script.cases):
        for before, other in enumerate(script.cases[:number]):
            if all(any(text in wanted for wanted in case.when) for text in other.when):
                problem = f"cases.{number}: never reached, since cases.{before} fits all that it fits"
                yield ("cases", number), problem


_NO_SUCH_KEY = (
    f"no such key; a script has {', '.join(Script.model_fields)}, a turn {', '.join(Turn.model_fields)}"
)


def _error_text(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{where}: {_NO_SUCH_KEY}"
    message = str(error["msg"]).removeprefix("Value error, ")
    given = error["input"]
    if error["type"] == "string_type" and isinstance(given, dict) and "when" in error["loc"]:
        message = "a text with a colon needs quotes round it"
    shown = "" if isinstance(given, dict | list) else f", got {given!r}"
    text = f"{message[:1].lower()}{message[1:]}{shown}"
    return f"{where}: {text}" if where else text
