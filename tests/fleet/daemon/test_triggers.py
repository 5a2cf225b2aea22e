"""Webhooks and task files that create jobs, in a running daemon."""

import http.client
import json
import secrets
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import FleetFiles
from tests.fleet.signing import sign
from tests.ports import kept_port

from ringfence.fleet.trigger.webhook import LIMIT_BYTES

pytestmark = pytest.mark.slow
_SECRET = secrets.token_hex(16)


class Triggered(FleetFiles):
    """A fleet with a port for webhooks."""

    port: int

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
        """Send a request; return status and body of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(
                "POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()}
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def deliver(self, body: bytes, **headers: str) -> tuple[int, Any]:
        """Send a correctly signed request."""
        signature = sign(_SECRET.encode(), body)
        return self.post(
            "/hooks/hooked/push",
            body,
            Content_Type="application/json",
            X_Hub_Signature_256=signature,
            **headers,
        )


@pytest.fixture(scope="module")
def works(make_crew: Make) -> Iterator[Triggered]:
    """A fleet with an agent for each kind of trigger."""
    made = make_crew()
    made.__class__ = Triggered
    assert isinstance(made, Triggered)
    with kept_port() as made.port:
        model = {"model": made.script("quick", {"text": "done"})}
        (made.home / "secret").write_text(_SECRET)
        (made.home / "secret").chmod(0o600)
        (made.home / "broken").mkdir()
        common = {"workspace": ".", "sandbox": {"mode": "clone"}, "run": model}
        push = {"type": "webhook", "secret": "${secret:hook}", "prompt": "Look at {{ payload.ref }}"}
        timed = {**push, "secret": "${secret:asked}", "signature": "stripe"}
        made.write(
            fleet={"name": "c", "webhooks": {"address": f"127.0.0.1:{made.port}"}, "drain": "1s"},
            secrets={
                "hook": f"file:{made.home / 'secret'}",
                "asked": {"cmd": ["/bin/sh", "-c", f"echo x >>{made.home}/asked; cat {made.home}/secret"]},
            },
            agents={
                "hooked": {**common, "triggers": {"push": push, "timed": timed}},
                "failing": {
                    **common,
                    "run": {"model": "scripted:/nowhere.yaml"},
                    "triggers": {
                        "tasks": {"type": "directory", "path": str(made.home / "broken"), "every": "0.2s"}
                    },
                },
            },
        )
        made.up()
        yield made


def test_a_signed_request_makes_one_job(works: Triggered):
    """A new request is 202; a repeated one is 200 with the same job, whatever its key; the payload is in the prompt."""
    body = json.dumps({"ref": "main", "is": "first"}).encode()
    first = works.deliver(body, X_GitHub_Delivery="one")
    again = works.deliver(body, X_GitHub_Delivery="one")
    replayed = works.deliver(body, X_GitHub_Delivery="two")
    assert (first[0], again[0], replayed[0]) == (202, 200, 200)
    assert first[1]["job"] == again[1]["job"] == replayed[1]["job"]
    job = works.ends(first[1]["job"])
    assert (job["trigger"], job["trigger_name"], job["state"]) == ("webhook", "push", "unverified")
    said = works.does("job", "logs", first[1]["job"]).out
    assert "payload.ref>\n    main\n" in said


def test_a_signed_time_counts(works: Triggered):
    """With a signed time, a repeated request is the same job whatever its key; old and foreign ones are refused."""
    body = json.dumps({"ref": "timed"}).encode()

    def send(signature: str, **headers: str) -> tuple[int, Any]:
        kind = {"Content_Type": "application/json"}
        return works.post("/hooks/hooked/timed", body, Stripe_Signature=signature, **kind, **headers)

    now = datetime.now(UTC)
    good = sign(_SECRET.encode(), body, at=now)
    status, answer = send(good, Idempotency_Key="one")
    assert status == 202
    assert send(good, Idempotency_Key="two") == (200, {"job": answer["job"], "is_new": False})
    assert send(sign(_SECRET.encode(), body, at=now - timedelta(minutes=6)))[0] == 401
    assert send(sign(b"another", body, at=now))[0] == 401
    assert works.ends(answer["job"])["trigger_name"] == "timed"


def test_strangers_do_not_have_secrets_fetched(works: Triggered):
    """Requests without a well-formed signature do not start the program of the secret; wrong ones do once a minute."""
    asked = works.home / "asked"
    before = asked.read_text() if asked.exists() else ""
    assert works.post("/hooks/hooked/timed", b"{}")[0] == 401
    assert works.post("/hooks/hooked/timed", b"{}", Stripe_Signature="t=1")[0] == 400
    assert (asked.read_text() if asked.exists() else "") == before
    send = {"Stripe_Signature": sign(b"another", b"{}", at=datetime.now(UTC))}
    with ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda _: works.post("/hooks/hooked/timed", b"{}", **send)[0], range(16))
        assert set(answers) == {401}
    assert asked.read_text() in (before, before + "x\n")


def test_a_retry_has_what_came_with_the_trigger(works: Triggered):
    """A retried job's task holds the same payload; braces in a task given by hand are no placeholders."""
    first = works.ends(works.deliver(json.dumps({"ref": "retried"}).encode())[1]["job"])
    again = works.does("job", "retry", first["id"], "--json").json["job"]["id"]
    assert works.ends(again)["state"] == "unverified"
    assert "payload.ref>\n    retried\n" in works.does("job", "logs", again).out
    other = works.does("job", "retry", first["id"], "--prompt", "say {{ this }}", "--json").json["job"]["id"]
    assert works.ends(other)["state"] == "unverified"
    assert "say {{ this }}" in works.does("job", "logs", other).out


def test_what_is_not_as_it_should_be_is_refused(works: Triggered):
    """Each invalid request (unsigned, unknown hook, no JSON, too long) has its status, and creates no job."""
    before = len(works.jobs(agent="hooked", limit=1000))
    body = b'{"ref": "x"}'
    wrong = sign(b"another", body)
    assert works.post("/hooks/hooked/push", body)[0] == 401
    assert works.post("/hooks/hooked/push", body, X_Hub_Signature_256=wrong)[0] == 401
    assert works.post("/hooks/hooked/push", body, X_Hub_Signature_256="none")[0] == 400
    assert works.post("/hooks/hooked/other", body)[0] == 404
    assert works.post("/hooks/nobody/push", body)[0] == 404
    assert works.deliver(b"{")[0] == 400
    assert works.post("/hooks/hooked/push", b"", Content_Length=str(LIMIT_BYTES + 1))[0] == 413
    assert len(works.jobs(agent="hooked", limit=1000)) == before


def test_a_body_that_is_too_long_is_refused_while_it_comes(works: Triggered):
    """A chunked body, whose length is not announced, is refused as soon as it exceeds the limit."""
    head = f"POST /hooks/hooked/push HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: {sign(b'another', b'')}\r\n"
    with socket.create_connection(("127.0.0.1", works.port), timeout=60) as sock:
        sock.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for size in (LIMIT_BYTES // 2, LIMIT_BYTES // 2, 1):
            sock.sendall(b"%x\r\n%b\r\n" % (size, bytes(size)))
        assert sock.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_the_address_of_webhooks_drives_nothing(works: Triggered):
    """`fleet.webhooks.address` serves the hooks, and nothing of the daemon's own API."""
    for path in ("/v1/down", "/v1/reload", "/v1/agents/hooked/jobs", "/openapi.json", "/metrics", "/hooks"):
        connection = http.client.HTTPConnection("127.0.0.1", works.port, timeout=30)
        try:
            connection.request("POST", path, b"{}", {"Content-Type": "application/json"})
            assert connection.getresponse().status == 404
        finally:
            connection.close()
    assert works.status()["is_ready"]


def test_a_task_that_failed_is_put_aside(works: Triggered):
    """A task file that its agent could not do is moved to `failed`, and not tried again."""
    (works.home / "broken" / "fix-it.md").write_text("Fix the window.")
    failed = works.home / "broken" / "failed"
    works.waits(lambda: sorted(failed.glob("*fix-it.md")) if failed.is_dir() else [], bool)
    (job,) = works.jobs(agent="failing")
    assert job["state"] == "configuration"
