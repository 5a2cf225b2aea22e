"""Hooks: commands in a sandbox, or on the host where that was named, and messages to other services."""

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
"""What a command on the host has of the daemon's variables, besides `LC_*`."""


@frozen
class HookResult:
    """What came of a hook."""

    is_ok: bool
    detail: str
    may_be_repeated: bool = False
    """Whether it could go well later: the other side was away, or busy."""
    run_dir: Path | None = None
    """Of the run that it was; None for what is none."""


async def run_hook(
    hook: CommandHook | WebhookHook,
    facts: Mapping[str, Any],
    *,
    effective: Effective,
    workspace: Path | None = None,
    after: str | None = None,
) -> HookResult:
    """Do what a hook says, once. Never raises for what goes wrong: that is the result.

    Args:
        hook: What is done.
        facts: What it is told.
        effective: The agent's settings.
        workspace: Where a command runs; requests need none.
        after: The run whose work on a private copy a command in a sandbox finds in its own.
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
    except Exception as exc:  # noqa: BLE001 -- the boundary of a hook; what it says may hold a secret
        return HookResult(is_ok=False, detail=f"it cannot be done: {type(root_cause(exc)).__name__}")


async def _in_sandbox(
    hook: CommandHook, facts: Mapping[str, Any], effective: Effective, workspace: Path, after: str | None
) -> HookResult:
    """A run of its own, with a record of its own; the facts are on its stdin."""
    command = ("/bin/sh", "-c", hook.command)
    request = command_request(command, workspace, effective, purpose="exec", wait_s=_WAIT_S, continues=after)
    with open_null() as nowhere, TemporaryFile() as told:
        told.write(_json(facts))
        told.seek(0)
        stdio = Stdio(told, nowhere, nowhere)
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
    """As the user, outside of any fence: only where the configuration names it. No key of the daemon's is handed on."""
    result = await run_process(
        ["/bin/sh", "-c", hook.command],
        stdin=_json(facts),
        cwd=workspace,
        env={name: value for name, value in os.environ.items() if name in _HANDED_ON or name[:3] == "LC_"},
        timeout_s=hook.timeout,
    )
    if result.timed_out:
        return HookResult(is_ok=False, detail=f"it took longer than {hook.timeout:g} s")
    said = (result.stderr or result.stdout).decode("utf-8", "replace").strip().splitlines()
    return HookResult(result.ok, f"exit code {result.exit_code}" + (f": {said[-1]}" if said else "")[:_LINE])


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
            # The status is all that counts: an answer that has no end is not read, one that never begins not waited for.
            with anyio.fail_after(hook.timeout):
                async with (
                    httpx2.AsyncClient(timeout=None, follow_redirects=False) as client,
                    client.stream("POST", url, content=content, headers=headers) as answer,
                ):
                    pass
        except (httpx2.HTTPError, TimeoutError) as exc:
            # Its text may hold the address, and that a secret.
            return HookResult(
                is_ok=False, detail=f"not delivered: {type(exc).__name__}", may_be_repeated=True
            )
    if answer.is_success:
        return HookResult(is_ok=True, detail=f"delivered: {answer.status_code}")
    is_passing = answer.status_code in _PASSING or answer.status_code >= _SERVER_ERROR
    return HookResult(is_ok=False, detail=f"refused: {answer.status_code}", may_be_repeated=is_passing)


def delivery_id(hook: WebhookHook, facts: Mapping[str, Any]) -> str:
    """The same for each try, so that a receiver that was told twice can know it."""
    job = facts["job"]
    return str(uuid5(NAMESPACE_URL, f"{job['id']}/{job['attempt']}/{facts['event']}/{hook.type}/{hook.url}"))


_WAIT_S = 30.0
_PASSING = (408, 425, 429)
_SERVER_ERROR = 500


def message_of(kind: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is sent: the facts, or a message in the form of Slack's or Discord's incoming webhooks.

    Nobody is called by what an agent wrote: mentions and links in it are taken apart.
    """
    if kind == "webhook":
        return facts
    line = _harmless(sentence(dict(facts)))
    if kind == "slack":
        return {"text": line}
    return {"content": line[:_DISCORD], "allowed_mentions": {"parse": []}}


_DISCORD = 2000


def _ntfy_text(facts: Mapping[str, Any]) -> bytes:
    """The message as plain text, with control characters made visible: ntfy shows it without markup."""
    return visible(sentence(dict(facts)), one_line=True)[:_NTFY].encode("utf-8", "replace")


def _ntfy_headers(hook: WebhookHook, facts: Mapping[str, Any]) -> dict[str, str]:
    """The headers of ntfy. None of them holds a text of the agent."""
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


def _harmless(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u200b")


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, ensure_ascii=False, sort_keys=True).encode("utf-8", "backslashreplace")
