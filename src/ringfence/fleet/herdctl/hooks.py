"""herdctl's hooks as ours: commands in the sandbox, and messages."""

from typing import Any

from ringfence.config.document import KeyPath
from ringfence.fleet.herdctl.document import PreparedJob
from ringfence.fleet.herdctl.reader import Reader, holds_variable
from ringfence.fleet.herdctl.secret import refer, referring

_EVENTS = {"completed": "on_success", "failed": "on_failure", "timeout": None, "cancelled": "on_cancel"}
_KINDS = ("shell", "webhook", "discord", "slack")
_DISCORD = "https://discord.com/api/v10/channels"


def convert_hooks(reader: Reader, made: PreparedJob) -> None:
    """Say `hooks:` as ours."""
    for key in reader.keys("hooks"):
        if key in ("after_run", "on_error"):
            for index in reader.indices("hooks", key):
                _hook(reader, made, key, ("hooks", key, index))


def _hook(reader: Reader, made: PreparedJob, key: str, path: KeyPath) -> None:
    if not reader.is_mapping(*path):
        raise reader.wrong(path, "write a mapping with a `type`")
    kind = reader.word((*path, "type"), _KINDS)
    if kind is None and not reader.has(*path, "type"):
        raise reader.wrong(path, f"`type` is missing; write one of {', '.join(_KINDS)}")
    reader.no_effect((*path, "name"), "hooks have no names here")
    if reader.flag(*path, "continue_on_error") is False:
        reader.no_effect(
            (*path, "continue_on_error"), "a hook never changes its job's end, here as in herdctl"
        )
    if reader.value(*path, "when") is not None:
        reader.left_out(path, "hooks have no conditions (`when`), and it would be done at each end")
        return
    points = _points(reader, key, path)
    if kind is None or not points:
        reader.value(*path)
        return
    hook = {"shell": _command, "webhook": _webhook, "discord": _discord, "slack": _slack}[kind](
        reader, made, path
    )
    if hook is None:
        return
    seconds = _seconds(reader, path)
    if seconds is not None:
        hook["timeout"] = seconds
    for point in points:
        made.add(("hooks", point), dict(hook), reader.origin(*path))


def _points(reader: Reader, key: str, path: KeyPath) -> list[str]:
    events = reader.texts(*path, "on_events")
    for index, event in enumerate(events or ()):
        if event not in _EVENTS:
            raise reader.wrong((*path, "on_events", index), f"write some of {', '.join(_EVENTS)}")
    if events is not None and "timeout" in events and "failed" not in events:
        reader.no_effect(
            (*path, "on_events"), "herdctl never sends `timeout`; `on_limit` and `on_failure` tell it here"
        )
    if key == "on_error":
        if events is None or "failed" in events:
            return ["on_failure"]
        reader.no_effect((*path, "on_events"), "herdctl never does this: only failed jobs come to `on_error`")
        return []
    if events is None or set(events) >= set(_EVENTS):
        return ["after_run"]
    return list(dict.fromkeys(point for event in events if (point := _EVENTS[event])))


def _seconds(reader: Reader, path: KeyPath) -> str | None:
    value = reader.scalar(*path, "timeout")
    if value is None or holds_variable(value):
        return f"{value}ms" if value is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise reader.wrong((*path, "timeout"), "write milliseconds")
    return f"{value}ms"


def _command(reader: Reader, _made: PreparedJob, path: KeyPath) -> dict[str, Any] | None:
    reader.changed(
        (*path, "command"),
        "herdctl runs it on the host with all of your environment; here it runs inside the agent's fence, with other "
        "facts on its stdin. `where: host` beside it, and `unsafe: [host_hooks]` in the agent, would take it out",
    )
    command = reader.text(*path, "command")
    if not command:
        raise reader.wrong(path, "`command` is missing")
    return {"type": "command", "command": command, "timeout": "30s"}


def _webhook(reader: Reader, made: PreparedJob, path: KeyPath) -> dict[str, Any] | None:
    url = reader.text(*path, "url")
    if not url:
        raise reader.wrong(path, "`url` is missing")
    if reader.word((*path, "method"), ("POST", "PUT")) == "PUT":
        reader.left_out(path, "hooks are sent by POST only")
        return None
    reader.changed(
        (*path, "url"), "the facts of the job are sent in another form (`job`, `state`, `answer`, ...)"
    )
    origin = reader.origin(*path)
    headers = {name: referring(made, text, origin) for name, text in reader.table(*path, "headers").items()}
    hook: dict[str, Any] = {"type": "webhook", "url": referring(made, url, origin)}
    return hook | ({"headers": headers} if headers else {})


def _discord(reader: Reader, made: PreparedJob, path: KeyPath) -> dict[str, Any] | None:
    channel = reader.text(*path, "channel_id")
    token = reader.value(*path, "bot_token_env")
    if not channel or not isinstance(token, str):
        raise reader.wrong(path, "`channel_id` and `bot_token_env` are needed")
    reference = refer(made, token, reader.origin(*path, "bot_token_env"))
    url = f"{_DISCORD}/{channel}/messages"
    return {"type": "discord", "url": url, "headers": {"Authorization": f"Bot {reference}"}}


def _slack(reader: Reader, made: PreparedJob, path: KeyPath) -> dict[str, Any] | None:
    channel = reader.value(*path, "channel_id")
    is_plain = isinstance(channel, str) and channel.isascii() and channel.isalnum()
    variable = f"SLACK_WEBHOOK_{channel}"[:64] if is_plain else "SLACK_WEBHOOK_URL"
    reader.left_out(
        (*path, "bot_token_env"),
        f"messages go to an incoming webhook of Slack's, whose address is in ${variable}",
    )
    reader.changed(
        (*path, "channel_id"),
        f"make an incoming webhook for this channel, and set ${variable} to its address",
    )
    return {"type": "slack", "url": refer(made, variable, reader.origin(*path))}
