"""Converts herdctl's hooks to commands in the sandbox and to messages."""

from typing import Any

from ringfence.config.document import KeyPath
from ringfence.fleet.herdctl.reader import Reader, has_variable
from ringfence.fleet.herdctl.secret import replace_variables, secret_reference

_POINTS = {"completed": "on_success", "failed": "on_failure", "timeout": None, "cancelled": "on_cancel"}
"""The hook point of each event of herdctl."""
_DISCORD = "https://discord.com/api/v10/channels"


def convert_hooks(reader: Reader) -> None:
    """Convert `hooks`."""
    for key in reader.keys("hooks"):
        if key in ("after_run", "on_error"):
            for index in reader.indices("hooks", key):
                with reader.collected():
                    _convert_hook(reader, key, ("hooks", key, index))


def _convert_hook(reader: Reader, key: str, path: KeyPath) -> None:
    if not reader.is_mapping(*path):
        raise reader.error(path, "write a mapping with a `type`")
    kind = reader.choice((*path, "type"), tuple(_CONVERTERS))
    if kind is None and not reader.has(*path, "type"):
        raise reader.error(path, f"`type` is missing; write one of {', '.join(_CONVERTERS)}")
    reader.no_effect((*path, "name"), "hooks have no names")
    if reader.flag(*path, "continue_on_error") is False:
        reader.no_effect(
            (*path, "continue_on_error"), "a hook never changes how its job ended, as in herdctl"
        )
    if reader.has(*path, "when"):
        reader.left_out(path, "hooks have no conditions (`when`): it would run after every job")
        return
    points = _hook_points(reader, key, path)
    if kind is None or not points:
        reader.value(*path)
        return
    hook = _CONVERTERS[kind](reader, path)
    if hook is None:
        return
    timeout = _timeout(reader, path)
    if timeout is not None:
        hook["timeout"] = timeout
    for point in points:
        reader.append(("hooks", point), dict(hook), *path)


def _hook_points(reader: Reader, key: str, path: KeyPath) -> list[str]:
    events = reader.texts(*path, "on_events")
    for index, event in enumerate(events or ()):
        if event not in _POINTS:
            raise reader.error((*path, "on_events", index), f"write some of {', '.join(_POINTS)}")
    if events is not None and "timeout" in events and "failed" not in events:
        reader.no_effect(
            (*path, "on_events"), "herdctl never sends `timeout`; see `on_limit` and `on_failure`"
        )
    if key == "on_error":
        if events is None or "failed" in events:
            return ["on_failure"]
        reader.no_effect((*path, "on_events"), "herdctl never runs it: `on_error` is for failed jobs only")
        return []
    if events is None or set(events) >= set(_POINTS):
        return ["after_run"]
    return list(dict.fromkeys(point for event in events if (point := _POINTS[event])))


def _timeout(reader: Reader, path: KeyPath) -> str | None:
    value = reader.scalar(*path, "timeout")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or has_variable(value) or (is_number and value > 0):
        return None if value is None else f"{value}ms"
    raise reader.error((*path, "timeout"), "write milliseconds")


def _convert_command(reader: Reader, path: KeyPath) -> dict[str, Any]:
    reader.changed(
        (*path, "command"),
        "herdctl runs it on the host with your whole environment; here it runs in the agent's sandbox, with other facts "
        "on its stdin. `where: host` beside it, and `unsafe: [host_hooks]` in the agent, run it on the host",
    )
    command = reader.text(*path, "command")
    if not command:
        raise reader.error(path, "`command` is missing")
    return {"type": "command", "command": command, "timeout": "30s"}


def _convert_webhook(reader: Reader, path: KeyPath) -> dict[str, Any] | None:
    url = reader.text(*path, "url")
    if not url:
        raise reader.error(path, "`url` is missing")
    if reader.choice((*path, "method"), ("POST", "PUT")) == "PUT":
        reader.left_out(path, "hooks are sent by POST only")
        return None
    reader.changed((*path, "url"), "the facts of the job have another form (`job`, `state`, `answer`, ...)")
    hook: dict[str, Any] = {"type": "webhook", "url": replace_variables(reader, url, *path, "url")}
    headers = {
        name: replace_variables(reader, text, *path, "headers", name)
        for name, text in reader.table(*path, "headers").items()
    }
    return hook | ({"headers": headers} if headers else {})


def _convert_discord(reader: Reader, path: KeyPath) -> dict[str, Any]:
    channel, variable = reader.text(*path, "channel_id"), reader.expanded(*path, "bot_token_env")
    if not channel or not variable:
        raise reader.error(path, "`channel_id` and `bot_token_env` are needed")
    token = secret_reference(reader, variable, *path, "bot_token_env")
    url = f"{_DISCORD}/{channel}/messages"
    return {"type": "discord", "url": url, "headers": {"Authorization": f"Bot {token}"}}


def _convert_slack(reader: Reader, path: KeyPath) -> dict[str, Any]:
    channel = reader.value(*path, "channel_id")
    is_plain = isinstance(channel, str) and channel.isascii() and channel.isalnum()
    variable = f"SLACK_WEBHOOK_{channel}"[:64] if is_plain else "SLACK_WEBHOOK_URL"
    reader.left_out(
        (*path, "bot_token_env"),
        f"messages go to an incoming webhook of Slack, whose address is in ${variable}",
    )
    reader.changed(
        (*path, "channel_id"),
        f"make an incoming webhook for this channel, and set ${variable} to its address",
    )
    return {"type": "slack", "url": secret_reference(reader, variable, *path)}


_CONVERTERS = {
    "shell": _convert_command,
    "webhook": _convert_webhook,
    "discord": _convert_discord,
    "slack": _convert_slack,
}
