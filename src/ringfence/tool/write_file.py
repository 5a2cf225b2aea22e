"""The tool `write_file`: a whole file."""

from ringfence.tool.base import JSONObject, Tool, ToolContext, ToolResult, ToolSpec

_SCHEMA: JSONObject = {
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

    spec = ToolSpec(
        name="write_file",
        description=(
            "Write a file in the sandbox, in place of what was there; parent directories are made. To change "
            "a part of a file, use edit_file."
        ),
        input_schema=_SCHEMA,
    )

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Write it."""
        path: str = arguments["path"]
        data = arguments["content"].encode()
        await context.sandbox.write_file(path, data)
        return ToolResult(f"wrote {len(data)} bytes to {path}")
