"""The tool `read_file`: a file, or a range of its lines, with line numbers."""

from ringfence.tool.base import JSONObject, Tool, ToolContext, ToolResult, ToolSpec
from ringfence.tool.text_file import NotText, numbered, read_text, split_lines

_MAX_LINES = 2000
_RESULT_CHARS = 50_000

_SCHEMA: JSONObject = {
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
    spec = ToolSpec(
        name="read_file",
        description=(
            "Read a text file of the sandbox. Each line is shown with its number and a tab before it; these "
            f"are not part of the file. At most {_MAX_LINES} lines at a time; give start_line to go on. "
            "Binary files are refused."
        ),
        input_schema=_SCHEMA,
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
    """Lines `start` to `end` (1-based, both included) as far as the budget goes, and what is not shown."""
    last = min(len(lines), end or len(lines), start + _MAX_LINES - 1)
    shown = numbered(lines[start - 1 : last], start)
    if len(shown) > _RESULT_CHARS:
        kept = shown[:_RESULT_CHARS].count("\n") or 1
        shown = "\n".join(shown.split("\n")[:kept])
        last = start + kept - 1
    if last < min(len(lines), end or len(lines)):
        shown += f"\n[lines {start}-{last} of {len(lines)}; go on with start_line={last + 1}]"
    return shown
