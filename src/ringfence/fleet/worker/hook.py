"""Runs hooks: commands in a sandbox, or on the host where configured, and messages to other services."""

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import anyio

from ringfence.config.effective import Effective
from ringfence.config.paths import state_dir
from ringfence.errors import RingfenceError
from ringfence.escape import visible
from ringfence.fleet.config.model import CommandHook, WebhookHook
from ringfence.fleet.secret_placeholders import with_secrets
from ringfence.fleet.worker.hook_event import sentence
from ringfence.frozen import frozen
from ringfence.job.command import Stdio, open_null, run_command
from ringfence.job.credentials import with_credentials
from ringfence.job.outcome import root_cause
from ringfence.job.resolution import command_request
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.process import run_process

_LINE = 300
_HANDED_ON = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM", "XDG_RUNTIME_DIR"}
)
"""The environment variables of the daemon that a command on the host receives, besides `LC_*`."""


@frozen
class HookResult:
    """The result of a hook."""

    is_ok: bool
    detail: str
    may_be_repeated: bool = False
    """Whether a retry may succeed: the other side was unreachable or busy."""
    run_dir: Path | None = None
    """The directory of the hook's run; None if the hook is not a run."""


async def run_hook(
    hook: CommandHook | WebhookHook,
    facts: Mapping[str, Any],
    *,
    effective: Effective,
    workspace: Path | None = None,
    after: str | None = None,
) -> HookResult:
    """Run a hook once. A failure does not raise: it is the result.

    Args:
        hook: The hook.
        facts: The facts that it receives.
        effective: The agent's settings.
        workspace: The directory in which a command runs; requests need none.
        after: The run whose private copy of the workspace a command in a sandbox continues.
    """
    try:
        if isinstance(hook, WebhookHook):
            return await _post(hook, facts, effective)
        assert workspace is not None
        if hook.where == "host":
            return await _on_host(hook, facts, workspace)
        return await _in_sandbox(hook, facts, effective, workspace, after)
    except RingfenceError as exc:
        return HookResult(is_ok=False, detail=str(exc)[:_LINE])
    except Exception as exc:  # noqa: BLE001 -- the boundary of a hook; the exception's text may hold a secret
        return HookResult(is_ok=False, detail=f"it failed unexpectedly: {type(root_cause(exc)).__name__}")


async def _in_sandbox(
    hook: CommandHook, facts: Mapping[str, Any], effective: Effective, workspace: Path, after: str | None
) -> HookResult:
    """Run the command as a run of its own, with its own record; the facts are on its stdin."""
    command = ("/bin/sh", "-c", hook.command)
    request = command_request(command, workspace, effective, purpose="exec", wait_s=_WAIT_S, continues=after)
    with open_null() as null, TemporaryFile() as stdin:
        stdin.write(_json(facts))
        stdin.seek(0)
        stdio = Stdio(stdin, null, null)
        async with with_credentials(request, effective, lambda _line: None) as complete:
            run = JobRun(complete.running(partial(run_command, command, stdio)))
            with anyio.move_on_after(hook.timeout) as clock:
                result = await run.run()
    if clock.cancelled_caught:
        return HookResult(is_ok=False, detail=f"it took longer than {hook.timeout:g} s")
    detail = f"run {result.run_id}: {result.reason}"[:_LINE]
    return HookResult(
        is_ok=result.command_exit_code == 0,
        detail=detail,
        may_be_repeated=result.state in (JobState.INFRASTRUCTURE, JobState.SANDBOX_START, JobState.REFUSED),
        run_dir=result.run_dir,
    )


async def _on_host(hook: CommandHook, facts: Mapping[str, Any], workspace: Path) -> HookResult:
    """Run the command as the user, outside any sandbox, because it is so configured, without the daemon's keys."""
    result = await run_process(
        ["/bin/sh", "-c", hook.command],
        stdin=_json(facts),
        cwd=workspace,
        env={name: value for name, value in os.environ.items() if name in _HANDED_ON or name[:3] == "LC_"},
        timeout_s=hook.timeout,
    )
    if result.timed_out:
        return HookResult(is_ok=False, detail=f"it took longer than {hook.timeout:g} s")
    lines = (result.stderr or result.stdout).decode("utf-8", "replace").strip().splitlines()
    line = f": {lines[-1]}" if lines else ""
    return HookResult(result.ok, f"exit code {result.exit_code}{line}"[:_LINE])


async def _post(hook: WebhookHook, facts: Mapping[str, Any], effective: Effective) -> HookResult:
    import httpx2

    async with AsyncExitStack() as stack:
        fill = partial(with_secrets, stack=stack, references=effective.settings.secrets, state=state_dir())
        url = await fill(hook.url)
        headers = {name: await fill(value) for name, value in hook.headers.items()}
        if hook.type == "ntfy":
            content = _ntfy_text(facts)
            headers |= _ntfy_headers(hook, facts)
        else:
            content = _json(message_of(hook.type, facts))
            headers["Content-Type"] = "application/json"
        headers["X-Ringfence-Delivery"] = delivery_id(hook, facts)
        if hook.secret is not None:
            secret = await fill(hook.secret)
            digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
            headers["X-Ringfence-Signature-256"] = f"sha256={digest}"
        try:
            # Only the status matters: the body is not read, since it may never end, and the timeout bounds the wait.
            with anyio.fail_after(hook.timeout):
                async with (
                    httpx2.AsyncClient(timeout=None, follow_redirects=False) as client,
                    client.stream("POST", url, content=content, headers=headers) as response,
                ):
                    pass
        except (httpx2.HTTPError, TimeoutError) as exc:
            # The exception's text may hold the URL, which may hold a secret.
            return HookResult(
                is_ok=False, detail=f"not delivered: {type(exc).__name__}", may_be_repeated=True
            )
    if response.is_success:
        return HookResult(is_ok=True, detail=f"delivered: {response.status_code}")
    is_temporary = response.status_code in _TEMPORARY or response.status_code >= _SERVER_ERROR
    return HookResult(is_ok=False, detail=f"refused: {response.status_code}", may_be_repeated=is_temporary)


def delivery_id(hook: WebhookHook, facts: Mapping[str, Any]) -> str:
    """The same id for every attempt at a delivery, so that the receiver can recognise a duplicate."""
    job = facts["job"]
    return str(uuid5(NAMESPACE_URL, f"{job['id']}/{job['attempt']}/{facts['event']}/{hook.type}/{hook.url}"))


_WAIT_S = 30.0
_TEMPORARY = (408, 425, 429)
_SERVER_ERROR = 500


def message_of(kind: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body to send: the facts, or a message in the format of Slack's or Discord's incoming webhooks.

    Mentions and links in an agent's text are broken up, so that it cannot notify anyone.
    """
    if kind == "webhook":
        return facts
    line = _escape_markup(kind, sentence(dict(facts)))
    if kind == "slack":
        return {"text": line}
    return {"content": line[:_DISCORD], "allowed_mentions": {"parse": []}}


_DISCORD = 2000


def _ntfy_text(facts: Mapping[str, Any]) -> bytes:
    """The message as plain text, with control characters made visible: ntfy shows it without markup."""
    return visible(sentence(dict(facts)), one_line=True)[:_NTFY].encode("utf-8", "replace")


def _ntfy_headers(hook: WebhookHook, facts: Mapping[str, Any]) -> dict[str, str]:
    """The headers of an ntfy request. None of them holds text of the agent."""
    job = facts["job"]
    is_urgent = facts["need"] in ("question", "blocked", "failed")
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "Title": f"{job['agent']}: {job['state']}",
        "Priority": str(hook.priority or (_HIGH if is_urgent else _NORMAL)),
    }
    return {**headers, "Click": hook.click} if hook.click is not None else headers


_NTFY = 2000
_NORMAL, _HIGH = 3, 4
"""Priorities of ntfy."""


_DISCORD_MARKUP = str.maketrans({mark: f"\\{mark}" for mark in "\\[]()*_~`|"})


def _escape_markup(kind: str, text: str) -> str:
    """Return a text in which Slack or Discord find no mention, no address and, for Discord, no markup."""
    if kind == "discord":
        text = text.translate(_DISCORD_MARKUP)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("@", "@\u200b").replace("://", ":\u200b//")


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, ensure_ascii=False, sort_keys=True).encode("utf-8", "backslashreplace")
