"""Converts tools, permissions, MCP servers, plugins and settings of herdctl's agents."""

import os
import re
from pathlib import Path

from ringfence.config.document import KeyPath
from ringfence.fleet.herdctl.reader import Reader, escape
from ringfence.fleet.herdctl.secret import is_secret_name, names_secret

_MODES = {
    "default": "deny",
    "acceptEdits": "accept_edits",
    "bypassPermissions": "bypass",
    "plan": "plan",
    "delegate": "deny",
    "dontAsk": "deny",
}
_WEB_TOOLS = {
    "WebFetch": "allow the hosts that it fetches under `egress.allow`",
    "WebSearch": "write `egress: {provider_tools: [web_search]}`",
}
_SERVER = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9-]){0,31}")


def convert_tools(reader: Reader) -> None:
    """Convert the agent's permissions, tools, servers and plugins."""
    with reader.collected():
        _convert_tool_lists(reader, _convert_permission_mode(reader))
    reader.put(("client", "settings_sources"), reader.texts("setting_sources"), "setting_sources")
    for name in reader.keys("mcp_servers"):
        with reader.collected():
            _convert_server(reader, name)
    for index in reader.indices("plugins"):
        with reader.collected():
            _convert_plugin(reader, index)


def _convert_permission_mode(reader: Reader) -> str:
    path = ("permission_mode",)
    name = reader.choice(path, tuple(_MODES))
    if name == "default":
        reader.changed(path, "no person can be asked, so only the tools in `tools.allow` are permitted")
    elif name == "delegate":
        reader.changed(path, "there is no such mode, so only the tools in `tools.allow` are permitted")
    mode = _MODES[name or "acceptEdits"]
    reader.put(("client", "permission_mode"), mode, *path)
    return mode


def _convert_tool_lists(reader: Reader, mode: str) -> None:
    tools, allowed = reader.texts("tools"), reader.texts("allowed_tools")
    denied = reader.texts("denied_tools") or []
    reader.put(("tools", "deny"), denied or None, "denied_tools")
    _note_web_tools(reader, {"tools": tools, "allowed_tools": allowed}, denied)
    if mode == "bypass" and allowed:
        reader.no_effect(("allowed_tools",), "`permission_mode` permits everything already")
        allowed = None
    if tools and allowed:
        reader.changed(
            ("allowed_tools",),
            "`tools.allow` is one list of the tools that exist and are permitted: those that `tools` names as well",
        )
        both = [each for each in allowed if each.partition("(")[0] in tools or each.startswith("mcp__")]
        if not both:
            reader.changed(("tools",), "no tool is in both lists, so `tools.allow` permits these")
        reader.put(("tools", "allow"), both or tools, "allowed_tools" if both else "tools")
    elif tools:
        reader.changed(("tools",), "`tools.allow` permits the tools as well")
        reader.put(("tools", "allow"), tools, "tools")
    elif allowed:
        reader.changed(("allowed_tools",), "the agent has no other tools than those in `tools.allow`")
        reader.put(("tools", "allow"), allowed, "allowed_tools")


def _note_web_tools(reader: Reader, lists: dict[str, list[str] | None], denied: list[str]) -> None:
    """Add a note for each tool that needs network access, which herdctl's agents have and a sandbox lacks."""
    for tool, advice in _WEB_TOOLS.items():
        for key, names in lists.items():
            if tool not in denied and any(name.partition("(")[0] == tool for name in names or ()):
                reader.changed((key,), f"{tool} needs the network, and the sandbox has none; {advice}")


def _convert_server(reader: Reader, name: str) -> None:
    path: KeyPath = ("mcp_servers", name)
    kind = reader.choice((*path, "type"), ("stdio", "sse", "http"))
    if reader.has(*path, "url") or kind in ("sse", "http"):
        reader.left_out(path, "only servers that start in the sandbox (stdio) can be used")
        return
    if not _SERVER.fullmatch(name):
        reader.left_out(path, "its name is not valid here: up to 32 letters, digits, '-' and single '_'")
        return
    command = reader.text(*path, "command")
    if not command:
        raise reader.error(path, "`command` is missing")
    variables = []
    for variable, value in reader.table(*path, "env").items():
        if is_secret_name(variable) or names_secret(value):
            reader.left_out((*path, "env", variable), "the secret would be in the sandbox; see `egress.swap`")
        else:
            variables.append(f"{variable}={value}")
    reader.no_effect((*path, "headers"), "a server on stdio has no headers")
    for key in ("timeout", "alwaysLoad"):
        reader.left_out((*path, key), "servers start with the agent, within its limits")
    arguments = reader.texts(*path, "args") or []
    if any(names_secret(argument) for argument in arguments):
        reader.left_out(
            path, "its arguments contain a secret, which would be in the sandbox; see `egress.swap`"
        )
        return
    words = [*(["env", *variables] if variables else []), command, *arguments]
    reader.append(("tools", "mcp"), {"name": name, "command": words}, *path)


def _convert_plugin(reader: Reader, index: int) -> None:
    path: KeyPath = ("plugins", index)
    if reader.is_mapping(*path):
        if reader.choice((*path, "type"), ("local",)) is None:
            raise reader.error(path, "write `type: local` and a `path`")
        reader.left_out((*path, "skipMcpDiscovery"), "the servers of a plugin are always found")
        path = (*path, "path")
    plugin = reader.text(*path)
    if not plugin:
        raise reader.error(path, "write a path")
    origin = reader.origin(*path)
    if not plugin.startswith(("/", "${")) and origin.file is not None:
        home = Path(plugin).expanduser() if plugin.startswith("~") else Path(plugin)
        plugin = os.path.normpath(Path(escape(str(origin.file.parent.absolute()))) / home)
    reader.append(("client", "plugins"), plugin, *path)
