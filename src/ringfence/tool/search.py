"""The tools `list_files` and `search`.

`search_script` does the work; it runs in the sandbox, which always has python3 but not always ripgrep.
"""

import json
from functools import cache
from importlib import resources

from ringfence.events import JSONObject
from ringfence.tool.base import Tool, ToolContext, ToolResult, ToolSpec
from ringfence.tool.text import cut_text

_TIMEOUT_S = 60.0
_RESULT_CHARS = 30_000
_KEPT_BYTES = 256 * 1024
_LIST_LIMIT = 500
_SEARCH_LIMIT = 200

_PATH: JSONObject = {
    "type": "string",
    "minLength": 1,
    "description": "Where to look: relative to the workspace, or absolute. Default: the workspace.",
}
_SKIPS = "Version control directories, caches, node_modules and .venv are left out."


class ListFilesTool(Tool):
    """`list_files(path?, pattern?)`."""

    is_read_only = True
    has_valid_schema = True
    spec = ToolSpec(
        name="list_files",
        description=(
            "List a directory of the sandbox (directories end with a slash); or, with a pattern, all files "
            f"below it that match. At most {_LIST_LIMIT} are shown. {_SKIPS}"
        ),
        input_schema={
            "type": "object",
            "properties": {
                "path": _PATH,
                "pattern": {
                    "type": "string",
                    "minLength": 1,
                    "description": ("Glob such as *.py (at any depth), src/*.c or src/**/test_*.py."),
                },
            },
            "additionalProperties": False,
        },
    )

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """List one directory, or find files by name."""
        path: str = arguments.get("path", ".")
        pattern: str | None = arguments.get("pattern")
        if pattern is not None:
            return await _run_inside(
                context, {"do": "list", "path": path, "glob": pattern, "limit": _LIST_LIMIT}
            )
        entries = sorted(await context.sandbox.list_dir(path), key=lambda entry: entry.name)
        marks = {"dir": "/", "link": "@"}
        lines = [entry.name + marks.get(entry.kind, "") for entry in entries[:_LIST_LIMIT]]
        if len(entries) > _LIST_LIMIT:
            lines.append(f"[... {len(entries) - _LIST_LIMIT} more entries ...]")
        return ToolResult(cut_text("\n".join(lines) or "[the directory is empty]", _RESULT_CHARS))


class SearchTool(Tool):
    """`search(regex, path?, glob?, ignore_case?)`."""

    is_read_only = True
    has_valid_schema = True
    spec = ToolSpec(
        name="search",
        description=(
            "Search text files of the sandbox line by line for a regular expression (Python's). Gives "
            f"path:line:text, at most {_SEARCH_LIMIT} matches. {_SKIPS}"
        ),
        input_schema={
            "type": "object",
            "properties": {
                "regex": {"type": "string", "minLength": 1, "description": "Python regular expression."},
                "path": _PATH,
                "glob": {
                    "type": "string",
                    "minLength": 1,
                    "description": "Only files whose name or relative path matches, such as *.py.",
                },
                "ignore_case": {"type": "boolean", "description": "Default false."},
            },
            "required": ["regex"],
            "additionalProperties": False,
        },
    )

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Search the files in the sandbox."""
        return await _run_inside(
            context,
            {
                "do": "search",
                "path": arguments.get("path", "."),
                "regex": arguments["regex"],
                "glob": arguments.get("glob", "*"),
                "ignore_case": arguments.get("ignore_case", False),
                "limit": _SEARCH_LIMIT,
            },
        )


@cache
def _source() -> str:
    return resources.files("ringfence.tool").joinpath("search_script.py").read_text(encoding="utf-8")


async def _run_inside(context: ToolContext, query: JSONObject) -> ToolResult:
    result = await context.sandbox.run(
        # -I -S: ignore the workspace's modules, site-packages and PYTHON* variables.
        ["python3", "-I", "-S", "-c", _source()],
        stdin=json.dumps(query).encode(),
        timeout_s=_TIMEOUT_S,
        output_limit_bytes=_KEPT_BYTES,
    )
    if result.ended_by == "timeout":
        return ToolResult(
            f"the search took longer than {_TIMEOUT_S:.0f} s and was ended; narrow it", is_error=True
        )
    if not result.ok:
        return ToolResult(
            cut_text(result.stderr.strip(), 2000) or f"ended by {result.ended_by}", is_error=True
        )
    return ToolResult(cut_text(result.stdout.rstrip("\n"), _RESULT_CHARS, total_bytes=result.stdout_total))
