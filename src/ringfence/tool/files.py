"""The tools for files: `read_file`, `write_file` and `edit_file`."""

from ringfence.events import JSONObject
from ringfence.frozen import frozen
from ringfence.tool.base import Tool, ToolContext, ToolResult, ToolSpec
from ringfence.tool.text import NotText, numbered, read_text, split_lines

_MAX_LINES = 2000
_RESULT_CHARS = 50_000

_READ_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "Relative to the workspace, or absolute."},
        "start_line": {"type": "integer", "minimum": 1, "description": "First line to show. Default 1."},
        "end_line": {
            "type": "integer",
            "minimum": 1,
            "description": "Last line to show. Default: as far as fits.",
        },
    },
    "required": ["path"],
    "additionalProperties": False,
}


class ReadFileTool(Tool):
    """`read_file(path, start_line?, end_line?)`."""

    is_read_only = True
    has_valid_schema = True
    spec = ToolSpec(
        name="read_file",
        description=(
            "Read a text file of the sandbox. Each line is shown with its number and a tab before it; these "
            f"are not part of the file. At most {_MAX_LINES} lines at a time; give start_line to go on. "
            "Binary files are refused."
        ),
        input_schema=_READ_SCHEMA,
    )

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Read and number the lines."""
        path: str = arguments["path"]
        start: int = arguments.get("start_line", 1)
        end: int | None = arguments.get("end_line")
        if end is not None and end < start:
            return ToolResult(f"end_line {end} is before start_line {start}", is_error=True)
        try:
            lines = split_lines(await read_text(context.sandbox, path))
        except NotText as error:
            return ToolResult(str(error), is_error=True)
        if not lines:
            return ToolResult(f"[{path} is empty]")
        if start > len(lines):
            return ToolResult(
                f"start_line {start} is past the end: {path!r} has {len(lines)} lines", is_error=True
            )
        return ToolResult(show_lines(lines, start, end))


def show_lines(lines: list[str], start: int, end: int | None) -> str:
    """Return lines `start` to `end` (1-based, inclusive) within the size limits, and a note on lines left out."""
    last = min(len(lines), end or len(lines), start + _MAX_LINES - 1)
    shown = numbered(lines[start - 1 : last], start)
    if len(shown) > _RESULT_CHARS:
        kept = shown[:_RESULT_CHARS].count("\n") or 1
        shown = "\n".join(shown.split("\n")[:kept])
        last = start + kept - 1
    if last < min(len(lines), end or len(lines)):
        shown += f"\n[lines {start}-{last} of {len(lines)}; go on with start_line={last + 1}]"
    return shown


_WRITE_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "Relative to the workspace, or absolute."},
        "content": {"type": "string", "description": "The whole new content."},
    },
    "required": ["path", "content"],
    "additionalProperties": False,
}


class WriteFileTool(Tool):
    """`write_file(path, content)`."""

    has_valid_schema = True
    spec = ToolSpec(
        name="write_file",
        description=(
            "Write a file in the sandbox, in place of what was there; parent directories are made. To change "
            "a part of a file, use edit_file."
        ),
        input_schema=_WRITE_SCHEMA,
    )

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Write the file."""
        path: str = arguments["path"]
        data = arguments["content"].encode()
        await context.sandbox.write_file(path, data)
        return ToolResult(f"wrote {len(data)} bytes to {path}")


_LISTED_LINES = 10

_EDIT_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "Relative to the workspace, or absolute."},
        "old_text": {
            "type": "string",
            "minLength": 1,
            "description": "The text to replace, exactly as in the file, white space and line ends too.",
        },
        "new_text": {"type": "string", "description": "What to put in its place."},
        "replace_all": {
            "type": "boolean",
            "description": "Replace every occurrence. Default false: then old_text must occur exactly once.",
        },
    },
    "required": ["path", "old_text", "new_text"],
    "additionalProperties": False,
}


class EditRefused(Exception):
    """The edit is ambiguous or has no effect. The text explains why to the agent."""


@frozen
class Edit:
    """The text after the replacement, and the lines where it was replaced."""

    text: str
    lines: tuple[int, ...]
    """The 1-based line number of each replaced occurrence in the original text."""


def edit_text(text: str, old: str, new: str, *, replace_all: bool = False) -> Edit:
    """Replace `old` by `new` in `text`.

    Without `replace_all`, `old` must occur exactly once; overlapping occurrences count separately (`aa` occurs
    twice in `aaa`). With it, occurrences are replaced from left to right without overlap.

    Raises:
        EditRefused: `old` does not occur, occurs more than once, or equals `new`.
    """
    if old == new:
        raise EditRefused("old_text and new_text are the same; nothing would change")
    positions = _find_all(text, old, step=len(old) if replace_all else 1)
    if not positions:
        raise EditRefused(f"old_text is not in the file (0 occurrences){_hint(text, old)}")
    lines = _line_numbers(text, positions)
    if len(positions) > 1 and not replace_all:
        listed = ", ".join(map(str, lines[:_LISTED_LINES])) + (", ..." if len(lines) > _LISTED_LINES else "")
        raise EditRefused(
            f"old_text is in the file {len(positions)} times (at lines {listed}); add text around it until it "
            "is found once, or set replace_all"
        )
    return Edit(text.replace(old, new), lines)


def _find_all(text: str, old: str, *, step: int) -> list[int]:
    positions = []
    at = text.find(old)
    while at >= 0:
        positions.append(at)
        at = text.find(old, at + step)
    return positions


def _line_numbers(text: str, positions: list[int]) -> tuple[int, ...]:
    numbers = []
    line, seen = 1, 0
    for position in positions:
        line += text.count("\n", seen, position)
        seen = position
        numbers.append(line)
    return tuple(numbers)


def _hint(text: str, old: str) -> str:
    if "\r\n" in text and old.replace("\n", "\r\n") in text:
        return "; the file's lines end with \\r\\n: write them so"
    if old.strip() and old.strip() in text:
        return "; without the white space at its ends it is: compare the indentation"
    return "; read the file again and copy the text exactly, without line numbers"


class EditFileTool(Tool):
    """`edit_file(path, old_text, new_text, replace_all?)`."""

    has_valid_schema = True
    spec = ToolSpec(
        name="edit_file",
        description=(
            "Replace old_text by new_text in a text file of the sandbox. old_text must match exactly and "
            "occur exactly once, unless replace_all is true; otherwise nothing is changed and the result "
            "says how often and where it occurs."
        ),
        input_schema=_EDIT_SCHEMA,
    )

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Read the file, replace the text and write the file."""
        path: str = arguments["path"]
        try:
            text = await read_text(context.sandbox, path)
            edit = edit_text(
                text,
                arguments["old_text"],
                arguments["new_text"],
                replace_all=arguments.get("replace_all", False),
            )
        except (NotText, EditRefused) as error:
            return ToolResult(f"{path}: {error}", is_error=True)
        await context.sandbox.write_file(path, edit.text.encode())
        if len(edit.lines) == 1:
            return ToolResult(f"{path}: replaced 1 occurrence at line {edit.lines[0]}")
        return ToolResult(f"{path}: replaced {len(edit.lines)} occurrences")
