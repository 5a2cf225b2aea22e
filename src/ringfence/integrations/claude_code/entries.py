"""The settings that leave `claude` the tools of `ringfence mcp` only, as entries that are added to JSON documents.

Three of them deny, each for itself, because settings of several files are united:

* `permissions.deny` has a pattern for every capital letter, as the name of every tool of claude's own begins with one
  and a pattern must. So a tool that a later version adds is denied, too. A denied tool is in no request to the model,
  and no permission, mode or argument of claude brings it back; subagents, the shell of skills and `@file` are denied
  with it. `*` alone would deny the tools of MCP servers as well.
* `allowedMcpServers` keeps other MCP servers from starting, unless another file of settings allows them.
* The hook denies every tool but those of the server, so also those of a server that another file allows. Its command
  needs no program but the shell: claude goes on where a hook's program is missing.
"""

import copy
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import msgspec

from ringfence.errors import UsageError

KeyPath = tuple[str, ...]

SERVER_NAME = "ringfence"
_SERVERS = "mcpServers"
_REASON = "the configuration by 'ringfence init --claude-code' denies this tool; use the tools of ringfence"
_HOOK = {
    "matcher": f"^(?!mcp__{SERVER_NAME}__)",
    "hooks": [{"type": "command", "command": f'echo "{_REASON}" >&2; exit 2'}],
}
_SETTINGS: Mapping[KeyPath, Sequence[Any]] = {
    ("permissions", "deny"): [f"{letter}*" for letter in ascii_uppercase],
    ("permissions", "allow"): [f"mcp__{SERVER_NAME}"],
    ("enabledMcpjsonServers",): [SERVER_NAME],
    ("allowedMcpServers",): [{"serverName": SERVER_NAME}],
    ("hooks", "PreToolUse"): [_HOOK],
}


_VALUES: Mapping[KeyPath, str] = {
    # How long claude waits for a server with `alwaysLoad` before its first request, which else holds no tools.
    ("env", "MCP_CONNECT_TIMEOUT_MS"): "30000",
}


class Entry(msgspec.Struct, frozen=True):
    """Something that was added to a document."""

    path: KeyPath
    value: Any
    is_item: bool
    """Whether `value` was appended to the list at `path`; else it was set as the value there."""

    def is_same(self, other: "Entry") -> bool:
        """Return whether the other one has the same place; that of an item of a list is known by its value."""
        same_place = (self.path, self.is_item) == (other.path, other.is_item)
        return same_place and (not self.is_item or self.value == other.value)


class Conflict(UsageError):
    """A document has something else where an entry belongs.

    Args:
        path: The keys that lead there.
        problem: What is wrong, and the next step.
    """

    def __init__(self, path: KeyPath, problem: str) -> None:
        super().__init__(f"{'.'.join(path)} {problem}")


def add_settings(document: dict[str, Any]) -> list[Entry]:
    """Add the settings to a document of claude's settings; return what it did not have yet.

    Raises:
        Conflict: A value has another type, or a setting would take the server's tools away.
    """
    _check_denials(document)
    added: list[Entry] = []
    for path, items in _SETTINGS.items():
        present = _container(document, path, list, added)
        for item in items:
            if item not in present:
                present.append(copy.deepcopy(item))
                added.append(Entry(path, item, is_item=True))
    for (*parents, name), value in _VALUES.items():
        if name not in (holder := _container(document, tuple(parents), dict, added)):
            holder[name] = value
            added.append(Entry((*parents, name), value, is_item=False))
    return added


def add_server(document: dict[str, Any], command: Sequence[str], *, replace: bool = False) -> list[Entry]:
    """Add the server to a document of MCP servers; return what it did not have yet.

    Args:
        document: Changed in place.
        command: The command that starts the server.
        replace: Whether a server of this name that is another one is replaced.

    Raises:
        Conflict: A value has another type, or the name belongs to another server.
    """
    added: list[Entry] = []
    servers = _container(document, (_SERVERS,), dict, added)
    path = (_SERVERS, SERVER_NAME)
    server = _server(command)
    present = servers.get(SERVER_NAME)
    if present is not None and not is_own_server(present) and not replace:
        raise Conflict(
            path, "is another server, or was changed; rename or remove it, or replace it with --force"
        )
    if present != server:
        servers[SERVER_NAME] = server
        added.append(Entry(path, server, is_item=False))
    return added


def has_own_server(document: Mapping[str, Any]) -> bool:
    """Return whether a document of MCP servers has the server already, wherever ringfence is installed."""
    return is_own_server(_lookup(document, (_SERVERS, SERVER_NAME)))


def is_own_server(server: Any) -> bool:
    """Return whether a server is one that `add_server` adds, wherever ringfence is installed."""
    return (
        isinstance(server, dict)
        and server.get("args") in (["mcp"], ["-m", "ringfence", "mcp"])
        and server == _server([server.get("command"), *server["args"]])
    )


def _server(command: Sequence[Any]) -> dict[str, Any]:
    return {"type": "stdio", "command": command[0], "args": [*command[1:]], "alwaysLoad": True}


def exclude(entries: Sequence[Entry], others: Sequence[Entry]) -> list[Entry]:
    """Return the entries whose place none of the others has."""
    return [entry for entry in entries if not any(entry.is_same(other) for other in others)]


def remove_entries(document: dict[str, Any], entries: Sequence[Entry]) -> list[KeyPath]:
    """Remove entries from a document; return the paths of those that were kept because they were changed.

    A list or an object that was added is removed once it is empty.
    """
    kept = []
    for entry in reversed(entries):
        parent = _lookup(document, entry.path if entry.is_item else entry.path[:-1])
        name = entry.path[-1]
        if entry.is_item:
            if isinstance(parent, list) and entry.value in parent:
                parent.remove(entry.value)
        elif isinstance(parent, dict) and name in parent:
            if parent[name] == entry.value or (entry.value and is_own_server(parent[name])):
                del parent[name]
            elif entry.value:
                kept.append(entry.path)
    return kept


def _check_denials(document: Mapping[str, Any]) -> None:
    """Refuse settings that would win over the permission of the server's tools."""
    for path, field in (
        (("permissions", "deny"), None),
        (("disabledMcpjsonServers",), None),
        (("deniedMcpServers",), "serverName"),
    ):
        denied = _lookup(document, path)
        for each in denied if isinstance(denied, list) else ():
            name = each.get(field) if field is not None and isinstance(each, dict) else each
            if isinstance(name, str) and (
                name in ("*", "mcp__*", SERVER_NAME) or name.startswith(f"mcp__{SERVER_NAME}")
            ):
                raise Conflict(path, f"has {name!r}, which denies the tools of ringfence; remove it")


def _container(document: dict[str, Any], path: KeyPath, kind: type[Any], added: list[Entry]) -> Any:
    """Return the list or object at a path; what is missing is created and noted in `added`."""
    here: Any = document
    for depth, key in enumerate(path, start=1):
        expected = kind if depth == len(path) else dict
        if key not in here:
            here[key] = expected()
            added.append(Entry(path[:depth], expected(), is_item=False))
        here = here[key]
        if not isinstance(here, expected):
            noun = "an object" if expected is dict else "a list"
            raise Conflict(path[:depth], f"is not {noun}; correct it")
    return here


def _lookup(document: Any, path: KeyPath) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document
