"""The tool `edit_file`: replace a text that is found exactly, and exactly once unless all are meant."""

from ringfence.frozen import frozen
from ringfence.tool.base import JSONObject, Tool, ToolContext, ToolResult, ToolSpec
from ringfence.tool.text_file import NotText, read_text

_LISTED_LINES = 10

_SCHEMA: JSONObject = {
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
    """The edit is not clear. Its text tells the agent why."""


@frozen
class Edit:
    """A text after the replacement, and where it was replaced."""

    text: str
    lines: tuple[int, ...]
    """1-based line of the start of each replaced occurrence, in the text before."""


def edit_text(text: str, old: str, new: str, *, replace_all: bool = False) -> Edit:
    """Replace `old` by `new` in `text`.

    Without `replace_all`, `old` must be found at exactly one place, overlapping places counted each (`aa` is
    twice in `aaa`). With it, occurrences are replaced from left to right without overlap.

    Raises:
        EditRefused: Not found, found more than once, or nothing would change.
    """
    if old == new:
        raise EditRefused("old_text and new_text are the same; nothing would change")
    places = _places(text, old, step=len(old) if replace_all else 1)
    if not places:
        raise EditRefused(f"old_text is not in the file (0 occurrences){_hint(text, old)}")
    lines = _line_numbers(text, places)
    if len(places) > 1 and not replace_all:
        listed = ", ".join(map(str, lines[:_LISTED_LINES])) + (", ..." if len(lines) > _LISTED_LINES else "")
        raise EditRefused(
            f"old_text is in the file {len(places)} times (at lines {listed}); add text around it until it "
            "is found once, or set replace_all"
        )
    return Edit(text.replace(old, new), lines)


def _places(text: str, old: str, *, step: int) -> list[int]:
    places = []
    at = text.find(old)
    while at >= 0:
        places.append(at)
        at = text.find(old, at + step)
    return places


def _line_numbers(text: str, places: list[int]) -> tuple[int, ...]:
    numbers = []
    line, seen = 1, 0
    for place in places:
        line += text.count("\n", seen, place)
        seen = place
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

    spec = ToolSpec(
        name="edit_file",
        description=(
            "Replace old_text by new_text in a text file of the sandbox. old_text must match exactly and "
            "occur exactly once, unless replace_all is true; otherwise nothing is changed and the result "
            "says how often and where it occurs."
        ),
        input_schema=_SCHEMA,
    )

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Read, replace, write."""
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
