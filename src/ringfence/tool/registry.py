"""Toolsets by name, imported on use."""

from importlib import import_module

from ringfence.errors import UsageError
from ringfence.tool.base import Tool

_TOOLSETS = {
    "coder": (
        "ringfence.tool.shell:ShellTool",
        "ringfence.tool.read_file:ReadFileTool",
        "ringfence.tool.write_file:WriteFileTool",
        "ringfence.tool.edit_file:EditFileTool",
        "ringfence.tool.find:ListFilesTool",
        "ringfence.tool.find:SearchTool",
    ),
    "operator": ("ringfence.tool.shell:ShellTool",),
}


def toolset_names() -> tuple[str, ...]:
    """The names that `toolset_tools` knows."""
    return tuple(sorted(_TOOLSETS))


def toolset_tools(name: str) -> tuple[Tool, ...]:
    """New tools of the toolset `name`.

    Raises:
        UsageError: There is no such toolset.
    """
    places = _TOOLSETS.get(name)
    if places is None:
        raise UsageError(f"there is no toolset {name!r}; there are: {', '.join(toolset_names())}")
    return tuple(_load(place)() for place in places)


def _load(place: str) -> type[Tool]:
    module, _, attribute = place.partition(":")
    loaded: type[Tool] = getattr(import_module(module), attribute)
    return loaded
