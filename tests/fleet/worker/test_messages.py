"""Messages of hooks to other services: signed, retried, and harmless."""

import hashlib
import hmac
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.fleet.receiver import Receiver, receiver
from tests.ports import kept_port

from ringfence.config.effective import Effective
from ringfence.fleet.config.model import AgentSettings, WebhookHook
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.inbox import Entry
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.worker.hook import HookResult, message_of, run_hook
from ringfence.fleet.worker.hook_event import facts_of, need_of
from ringfence.fleet.worker.job_settings import effective_of
from ringfence.fleet.worker.job_workspace import JobWorkspaces
from ringfence.fleet.worker.lifecycle_hooks import LifecycleHooks
from ringfence.job.state import JobState

_HOSTILE = "<!channel> <@U1> @everyone [x](http://e) & \ud800\x1b[31m" + "x" * 5000


def _job(**more: Any) -> Job:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    nothing = dict.fromkeys(Job.__dataclass_fields__)
    known = {
        "id": "j1",
        "agent": "a",
        "state": JobState.FAILED,
        "reason": _HOSTILE,
        "attempt": 1,
        "cost_usd": 0.5,
    }
    return Job(**{**nothing, **known, "created_at": now, "trigger": "manual", "tokens": 7, **more})


@pytest.fixture
def facts() -> dict[str, Any]:
    """The facts of a job whose agent wrote text that would act in other services."""
    return facts_of(_job(), "after_run", _HOSTILE)


def _effective(tmp_path: Path) -> Effective:
    (tmp_path / "secret").write_text("s3cr3t-value")
    (tmp_path / "secret").chmod(0o600)
    settings = AgentSettings.model_validate({"secrets": {"hook": f"file:{tmp_path / 'secret'}"}})
    return effective_of(settings, _job())


def _send(hook: WebhookHook, facts: dict[str, Any], tmp_path: Path) -> HookResult:
    return anyio.run(partial(run_hook, hook, facts, effective=_effective(tmp_path), workspace=tmp_path))


@pytest.fixture
def told() -> Iterator[Receiver]:
    """A service that receives messages."""
    with receiver() as running:
        yield running


def test_a_message_is_signed(told: Receiver, facts: dict[str, Any], tmp_path: Path):
    """The body holds the facts and is signed with the configured secret; headers may contain secrets, too."""
    hook = WebhookHook(
        type="webhook", url=told.url, secret="${secret:hook}", headers={"X-Key": "is ${secret:hook}"}
    )
    result = _send(hook, facts, tmp_path)
    headers, body = told.take()
    digest = hmac.new(b"s3cr3t-value", body, hashlib.sha256).hexdigest()
    assert headers["x-ringfence-signature-256"] == f"sha256={digest}"
    assert headers["x-key"] == "is s3cr3t-value"
    assert json.loads(body)["job"]["state"] == "failed"
    assert (result.is_ok, result.detail) == (True, "delivered: 200")


_ENDLESS = {
    "body": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\nmore\r\n", "delivered: 200"),
    "head": (b"HTTP/1.1 200 OK\r\n", b"X-More: more\r\n", "not delivered: RemoteProtocolError"),
    "silence": (b"", b"", "not delivered: TimeoutError"),
    "line": (b"HTTP/1.1 2", b"", "not delivered: TimeoutError"),
}


@pytest.mark.parametrize("kind", _ENDLESS)
def test_an_answer_without_an_end_holds_nobody(facts: dict[str, Any], tmp_path: Path, kind: str):
    """A service whose response does not begin or end keeps the worker no longer than the hook's time limit."""
    first, more, said = _ENDLESS[kind]

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(first)
            while more:
                connection.sendall(more)
            while connection.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        result = _send(WebhookHook(type="webhook", url=url, timeout=1.0), facts, tmp_path)
        thread.join()
    assert result.detail == said


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99999/", "${secret:hook}"])
def test_an_address_that_is_none_is_a_result(facts: dict[str, Any], tmp_path: Path, url: str):
    """An invalid address is a failed result, not an error, so that other hooks still run."""
    assert not _send(WebhookHook(type="webhook", url=url), facts, tmp_path).is_ok


def test_each_try_has_the_same_name(told: Receiver, facts: dict[str, Any], tmp_path: Path):
    """All attempts to deliver a message have the same delivery id; another job's message has another."""
    hook = WebhookHook(type="webhook", url=told.url)
    for job in ("j1", "j1", "j2"):
        _send(hook, {**facts, "job": {**facts["job"], "id": job}}, tmp_path)
    names = [told.take()[0]["x-ringfence-delivery"] for _ in range(3)]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("status", "is_repeated"),
    [(500, True), (503, True), (429, True), (408, True), (302, False), (400, False), (404, False)],
)
def test_what_may_pass_is_tried_again(status: int, is_repeated: bool, facts: dict[str, Any], tmp_path: Path):
    """Temporary failures may be retried; refusals are not, and redirections are not followed."""
    with receiver(status) as told:
        result = _send(WebhookHook(type="webhook", url=told.url), facts, tmp_path)
        told.take()
        assert told.got == []
    assert (result.is_ok, result.may_be_repeated, result.detail) == (
        False,
        is_repeated,
        f"refused: {status}",
    )


def test_a_service_that_is_away_is_tried_again_and_its_address_not_told(
    facts: dict[str, Any], tmp_path: Path
):
    """A message to an unreachable service is retried; its address, which may be a secret, is in no message."""
    with kept_port() as port:
        hook = WebhookHook(type="webhook", url=f"http://127.0.0.1:{port}/${{secret:hook}}")
        result = _send(hook, facts, tmp_path)
    assert (result.is_ok, result.may_be_repeated) == (False, True)
    assert "127.0.0.1" not in result.detail
    assert "s3cr3t" not in result.detail


_TRIES = {
    "first": (503, 1, "refused: 503; it is tried again in 5s (try 2 of 3)"),
    "second": (503, 2, "refused: 503; it is tried again in 10s (try 3 of 3)"),
    "last": (503, 3, "refused: 503; it is not tried again"),
    "final": (404, 1, "refused: 404; it is not tried again"),
}


@pytest.mark.parametrize("kind", _TRIES)
def test_it_is_told_whether_a_message_is_tried_again(tmp_path: Path, kind: str):
    """The log says whether, when and as which attempt a message is sent again, without its address."""
    status, tried, said = _TRIES[kind]
    lines: list[str] = []
    database = Database(f"sqlite:///{tmp_path}/crew.db")
    database.create_tables()
    around = LifecycleHooks(Jobs(database), JobWorkspaces(tmp_path), lambda line, /, **_: lines.append(line))

    async def act(url: str) -> None:
        hook = {"type": "webhook", "url": url, "attempts": 3}
        settings = AgentSettings.model_validate({"hooks": {"on_failure": [hook]}})
        (delivery,) = await around.after(_job(), settings)
        await delivery.act(tried)

    with receiver(status) as told:
        anyio.run(act, told.url)
    database.close()
    assert lines == [f"hook on_failure 1: {said}"]


def test_a_secret_that_is_not_there_is_told(told: Receiver, facts: dict[str, Any], tmp_path: Path):
    """If the signing secret is missing, nothing is sent, and the result says why."""
    result = _send(WebhookHook(type="webhook", url=told.url, secret="${secret:other}"), facts, tmp_path)
    assert "secret 'other' is not defined" in result.detail
    assert told.got == []


@pytest.mark.parametrize("kind", ["slack", "discord"])
def test_nobody_is_called_by_what_an_agent_wrote(kind: str, facts: dict[str, Any]):
    """Mentions, links and channels in an agent's reason are made inactive, and a message's length is limited."""
    message = message_of(kind, facts)
    text = str(message.get("text", message.get("content")))
    assert not [mark for mark in ("<!", "<@", "@everyone", "<http") if mark in text]
    assert len(text) <= 5000
    if kind == "discord":
        assert message["allowed_mentions"] == {"parse": []}
        assert len(text) <= 2000


@pytest.mark.parametrize(
    ("kind", "marks"), [("slack", ("://",)), ("discord", ("://", "](", "**", "__", "||", "``", "~~"))]
)
def test_links_of_an_agent_are_no_links(kind: str, marks: tuple[str, ...]):
    """An address is not linked, and Discord shows no link under another text and no markup."""
    reason = r"[fix](https://evil.example) \[x\](http://evil.example) **a** __b__ ||c|| ``d`` ~~e~~"
    message = message_of(kind, facts_of(_job(reason=reason), "after_run", None, need=None, question=None))
    text = str(message.get("text", message.get("content")))
    assert "evil.example" in text
    assert [mark for mark in marks if mark in text] == []
    if kind == "discord":  # each mark is behind an odd number of backslashes
        assert not re.search(r"(?<!\\)(\\\\)*[\[\]()*_~`|]", text.partition(": ")[2])


_QUESTION = Entry(
    id="q1", job="j1", agent="a", attempt=1, run_id="r1", kind="host", rule={"host": "api.example.com", "port": 443},
    text=_HOSTILE, created_at=datetime(2026, 1, 2, tzinfo=UTC), deadline=None, answer=None, scope=None, reply="",
    answered_by=None, answered_at=None,
)  # fmt: skip


@pytest.mark.parametrize(
    ("more", "priority"), [({}, "4"), ({"priority": 2, "click": "https://fleet.example/inbox"}, "2")]
)
def test_ntfy_gets_a_line_of_text_and_headers(
    told: Receiver, tmp_path: Path, more: dict[str, Any], priority: str
):
    """The text names the question and the command that answers it; no text of the agent is in a header."""
    facts = facts_of(
        _job(state=JobState.WAITING), "on_waiting", _HOSTILE, need="question", question=_QUESTION
    )
    assert _send(WebhookHook(type="ntfy", url=told.url, **more), facts, tmp_path).is_ok
    headers, body = told.take()
    assert body.decode() == (
        "a asks to connect to api.example.com:443; `ringfence inbox answer q1 allow|deny` answers it"
    )
    assert (headers["title"], headers["priority"]) == ("a: waiting", priority)
    assert headers.get("click") == more.get("click")
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert "x-ringfence-signature-256" not in headers


def test_ntfy_shows_control_characters_of_a_reason(told: Receiver, tmp_path: Path):
    """Control characters of an agent's reason are shown escaped, in one line."""
    facts = facts_of(_job(reason="a\x1b[31m\nb"), "on_inbox", None, need="failed")
    _send(WebhookHook(type="ntfy", url=told.url), facts, tmp_path)
    _, body = told.take()
    assert "\x1b" not in body.decode()
    assert "\n" not in body.decode()


@pytest.mark.parametrize(
    ("state", "has_changes", "need"),
    [
        (JobState.WAITING, False, "question"),
        (JobState.BLOCKED, False, "blocked"),
        (JobState.FAILED, False, "failed"),
        (JobState.LIMIT, True, "failed"),
        (JobState.INFRASTRUCTURE, False, "failed"),
        (JobState.SUCCEEDED, True, "apply"),
        (JobState.UNVERIFIED, True, "apply"),
        (JobState.SUCCEEDED, False, None),
        (JobState.CANCELLED, True, None),
    ],
)
def test_what_needs_a_person(state: JobState, has_changes: bool, need: str | None):
    """Questions, blocked and failed jobs, and changes to apply need a person."""
    assert need_of(state, has_changes=has_changes) == need


@pytest.mark.parametrize("field", [{"click": "https://x.example"}, {"priority": 5}])
def test_what_only_ntfy_has_is_refused_elsewhere(field: dict[str, Any]):
    """Fields that only ntfy has are refused for other types."""
    with pytest.raises(ValueError, match="have no effect with `type: slack`"):
        WebhookHook(type="slack", url="https://x.example", **field)
