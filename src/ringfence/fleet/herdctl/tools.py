"""What herdctl's agents may do: tools, permissions, MCP servers, plugins, settings."""

import os
import re
from pathlib import Path

from ringfence.config.document import KeyPath
from ringfence.fleet.herdctl.document import PreparedJob
from ringfence.fleet.herdctl.reader import Reader, escaped
from ringfence.fleet.herdctl.secret import is_secret_name, names_secret

_MODES = {
    "default": "deny",
    "acceptEdits": "accept_edits",
    "bypassPermissions": "bypass",
    "plan": "plan",
    "delegate": "deny",
    "dontAsk": "deny",
}
_SERVER = re.compile(r"[A-Za-z0-9](?:_?[A-Za-z0-9-]){0,31}")


def convert_tools(reader: Reader, made: PreparedJob) -> None:
    """Say what the agent may do."""
    mode = _permissions(reader, made)
    _tools(reader, made, mode)
    sources = reader.texts("setting_sources")
    if sources is not None:
        made.put(("client", "settings_sources"), sources, reader.origin("setting_sources"))
    for name in reader.keys("mcp_servers"):
        _server(reader, made, name)
    for index in reader.indices("plugins"):
        _plugin(reader, made, index)


def _permissions(reader: Reader, made: PreparedJob) -> str:
    said = reader.word(("permission_mode",), tuple(_MODES))
    if said == "default":
        reader.changed(
            ("permission_mode",), "nobody can be asked: only what `tools.allow` names is permitted"
        )
    elif said == "delegate":
        reader.changed(("permission_mode",), "there is none such: only what `tools.allow` names is permitted")
    mode = _MODES[said or "acceptEdits"]
    made.put(("client", "permission_mode"), mode, reader.origin("permission_mode"))
    return mode


def _tools(reader: Reader, made: PreparedJob, mode: str) -> None:
    tools, allowed = reader.texts("tools"), reader.texts("allowed_tools")
    made.put(("tools", "deny"), reader.texts("denied_tools") or None, reader.origin("denied_tools"))
    if mode == "bypass" and allowed:
        reader.no_effect(("allowed_tools",), "everything is permitted by `permission_mode` already")
        allowed = None
    if tools and allowed:
        reader.changed(
            ("allowed_tools",), "one list says what is there and permitted: those that `tools` names as well"
        )
        both = [each for each in allowed if each.partition("(")[0] in tools or each.startswith("mcp__")]
        if both:
            made.put(("tools", "allow"), both, reader.origin("allowed_tools"))
            return
        reader.left_out(("tools",), "no tool is in both lists; write `tools.allow`")
    elif tools:
        reader.changed(("tools",), "`tools.allow` says what is there, and permits it as well")
        made.put(("tools", "allow"), tools, reader.origin("tools"))
    elif allowed:
        reader.changed(("allowed_tools",), "`tools.allow` permits them, and leaves the agent no others")
        made.put(("tools", "allow"), allowed, reader.origin("allowed_tools"))


def _server(reader: Reader, made: PreparedJob, name: str) -> None:
    path: KeyPath = ("mcp_servers", name)
    kind = reader.word((*path, "type"), ("stdio", "sse", "http"))
    if reader.value(*path, "url") is not None or kind in ("sse", "http"):
        reader.left_out(
            path, "only servers that are started inside (stdio) can be used; allow its host by `egress.allow`"
        )
        return
    if not _SERVER.fullmatch(name):
        reader.left_out(path, "its name is none here: up to 32 letters, digits, '-' and single '_'")
        return
    command = reader.text(*path, "command")
    if not command:
        raise reader.wrong(path, "`command` is missing")
    variables = []
    for variable, value in reader.table(*path, "env").items():
        if is_secret_name(variable) or names_secret(value):
            reader.left_out((*path, "env", variable), "a secret would be inside the fence; see `egress.swap`")
        else:
            variables.append(f"{variable}={value}")
    reader.no_effect((*path, "headers"), "a server on stdio has no headers")
    for key in ("timeout", "alwaysLoad"):
        reader.left_out((*path, key), "servers are started with the agent, within its limits")
    arguments = reader.texts(*path, "args") or []
    if any(names_secret(argument) for argument in arguments):
        reader.left_out(
            path, "its arguments hold a secret, which would be inside the fence; see `egress.swap`"
        )
        return
    words = [*(["env", *variables] if variables else []), command, *arguments]
    made.add(("tools", "mcp"), {"name": name, "command": words}, reader.origin(*path))


def _plugin(reader: Reader, made: PreparedJob, index: int) -> None:
    path: KeyPath = ("plugins", index)
    if reader.is_mapping(*path):
        if reader.word((*path, "type"), ("local",)) is None:
            raise reader.wrong(path, "write `type: local` and a `path`")
        reader.left_out((*path, "skipMcpDiscovery"), "the servers of a plugin are always found")
        path = (*path, "path")
    said = reader.text(*path)
    if not said:
        raise reader.wrong(path, "write a path")
    origin = reader.origin(*path)
    if not said.startswith(("/", "${")) and origin.file is not None:
        home = Path(said).expanduser() if said.startswith("~") else Path(said)
        said = os.path.normpath(Path(escaped(str(origin.file.parent.absolute()))) / home)
    made.add(("client", "plugins"), said, origin)
