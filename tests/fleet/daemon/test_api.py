"""The daemon's local API: jobs, lists, one form for all errors, and who can reach it."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp
from tests.cases import slow_after

from ringfence.config.trust import trust_content
from ringfence.errors import InfrastructureFault
from ringfence.fleet.api.access import LocalAccess
from ringfence.fleet.api.app import create_app, create_local_app
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.api.error_responses import BODY_BYTES
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.daemon.http_server import serving

_CREW = """
agents:
  a: {prompt: do it, workspace: ., schedules: {daily: {cron: "@daily"}}}
  mute: {workspace: .}
  full: {prompt: do it, workspace: ., queue: 1}
"""


def daemon_of(home: Path, fleet: str = _CREW, environment: Mapping[str, str] | None = None) -> Daemon:
    """Return a daemon whose loop does not run, on a state directory of its own."""
    file = home / "p" / "ringfence.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(fleet)
    trust_content(file, file.read_bytes())

    async def make() -> Daemon:

        def say(line: str, /, **_fields: object) -> None:
            print(line)

        daemon = Daemon(file, home / "s", environment or {}, say)
        daemon.database.create_tables()
        await daemon.scheduler.take(daemon.fleet)
        return daemon

    return anyio.run(make)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose loop does not run, so that requests change its database only."""
    made = daemon_of(tmp_path)
    yield made
    made.database.close()


@pytest.fixture
def app(daemon: Daemon) -> ASGIApp:
    """The daemon's API."""
    return create_local_app(ApiContext.of_daemon(daemon))


@pytest.fixture
def client(app: ASGIApp) -> TestClient:
    """A client of the API."""
    return TestClient(app, raise_server_exceptions=False)


def test_a_job_is_entered_shown_and_listed(client: TestClient):
    """A job that is created by hand is shown as it was requested; the same key creates no second job."""
    asked = {"prompt": "look", "priority": 7, "key": "k"}
    first, second = (client.post("/v1/agents/a/jobs", json=asked) for _ in range(2))
    assert (first.status_code, first.json()["is_new"], second.json()["is_new"]) == (201, True, False)
    job = first.json()["job"]
    assert (job["state"], job["trigger"], job["priority"]) == ("queued", "manual", 7)
    shown = client.get(f"/v1/jobs/{job['id'][-6:]}").json()
    assert (shown["id"], shown["prompt"], shown["answer"]) == (job["id"], "look", None)
    assert [each["id"] for each in client.get("/v1/jobs").json()] == [job["id"]]


def test_a_queue_that_is_full_is_told(client: TestClient):
    """A job for an agent whose queue is full is refused for now, and the error names the limit."""
    assert client.post("/v1/agents/full/jobs", json={}).status_code == 201
    refused = client.post("/v1/agents/full/jobs", json={})
    assert (refused.status_code, refused.json()["error"]["exit_code"]) == (503, 75)
    assert "agent 'full' has 1 queued job, the maximum" in refused.json()["error"]["message"]


def test_lists_are_paged_and_filtered(client: TestClient):
    """`before` continues after a page's last job; agent and states filter; more than 1,000 jobs at once are refused."""
    made = [client.post("/v1/agents/a/jobs", json={"prompt": str(n)}).json()["job"]["id"] for n in range(5)]
    client.post(f"/v1/jobs/{made[0]}/cancel")
    first = [job["id"] for job in client.get("/v1/jobs?limit=2").json()]
    for last in (first[-1], first[-1][-6:]):
        rest = [job["id"] for job in client.get(f"/v1/jobs?limit=9&before={last}").json()]
        assert first + rest == made[::-1]
    gone = "20000101-000000-000000-5f3a9c"
    assert client.get(f"/v1/jobs?before={gone}").json() == []
    assert [job["id"] for job in client.get("/v1/jobs?state=cancelled&state=running").json()] == made[:1]
    assert client.get("/v1/jobs?agent=mute").json() == []
    assert client.get("/v1/jobs?limit=1001").status_code == 422


_REFUSED = {
    "unknown agent": ("POST", "/v1/agents/b/jobs", {}, 404, "there is no agent 'b'"),
    "no prompt": ("POST", "/v1/agents/mute/jobs", {}, 400, "no prompt of its own"),
    "unknown key": ("POST", "/v1/agents/a/jobs", {"promt": "x"}, 422, "promt"),
    "priority": ("POST", "/v1/agents/a/jobs", {"priority": 5000}, 422, "priority"),
    "unknown query": ("GET", "/v1/jobs?agnt=a", None, 400, "no query parameter 'agnt'; known here: agent,"),
    "state": (
        "GET",
        "/v1/jobs?state=gone",
        None,
        422,
        "state.0: 'gone' is none of 'queued', 'starting', 'running'",
    ),
    "time before all jobs": ("GET", "/v1/jobs?since=0001-01-01", None, 400, "not a time from 1970"),
    "time after all jobs": (
        "GET",
        "/v1/jobs?until=9999-12-31T23:59:59.9999",
        None,
        400,
        "not a time from 1970",
    ),
    "page": ("GET", "/v1/jobs?before=nope", None, 404, "there is no job 'nope'"),
    "unknown job": ("GET", "/v1/jobs/nope", None, 404, "there is no job 'nope'"),
    "unknown schedule": ("POST", "/v1/schedules/a/none/pause", None, 404, "no schedule 'none'"),
    "retry with a key": ("POST", "/v1/jobs/x/retry", {"key": "x"}, 422, "key"),
    "unknown path": ("GET", "/v1/nothing", None, 404, "Not Found"),
    "method": ("DELETE", "/v1/status", None, 405, "Method Not Allowed"),
}


@pytest.mark.parametrize(
    ("method", "url", "body", "status", "said"), slow_after(3, _REFUSED.values()), ids=_REFUSED
)
def test_refusals_have_one_form(client: TestClient, method: str, url: str, body: Any, status: int, said: str):
    """Every error is one line, with the exit code that a command ends with."""
    answer = client.request(method, url, json=body)
    problem = answer.json()["error"]
    assert (answer.status_code, problem["exit_code"]) == (status, 2)
    assert said in problem["message"]
    assert "\n" not in problem["message"]


def test_a_job_that_goes_on_is_not_removed_or_repeated(client: TestClient):
    """A live job can be neither removed nor retried; once cancelled it can be, but not cancelled again."""
    job = client.post("/v1/agents/a/jobs", json={}).json()["job"]["id"]
    assert client.delete(f"/v1/jobs/{job}").status_code == 400
    assert client.post(f"/v1/jobs/{job}/retry", json={}).status_code == 400
    assert client.post(f"/v1/jobs/{job}/cancel").json()["state"] == "cancelled"
    assert "has ended" in client.post(f"/v1/jobs/{job}/cancel").json()["error"]["message"]
    again = client.post(f"/v1/jobs/{job}/retry", json={}).json()["job"]
    assert (again["parent"], again["trigger"]) == (job, "retry")
    assert client.delete(f"/v1/jobs/{job}").status_code == 200
    assert client.get(f"/v1/jobs/{job}").status_code == 404


@pytest.mark.slow
def test_a_body_is_not_read_beyond_its_bound(client: TestClient):
    """A request may be as long as the longest prompt; the rest of a longer one is not read."""
    read = 0

    def endless() -> Iterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 1024 * 1024
            yield b" " * 1024 * 1024

    answer = client.post("/v1/agents/a/jobs", content=endless(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    longest = {"prompt": "\u4e2d" * 1024 * 1024}
    assert client.post("/v1/agents/a/jobs", json=longest).status_code == 201
    assert len("\\u4e2d" * 1024 * 1024) < BODY_BYTES


def test_only_its_owner_can_open_the_socket(daemon: Daemon, app: ASGIApp, tmp_path: Path):
    """Only the owner can access the socket and its directory: other users cannot connect, and there is no TCP port."""
    path = tmp_path / "s" / "fleet" / "daemon.sock"
    before = os.umask(0)

    async def look() -> tuple[int, int, int]:
        async with serving(app, path):
            refused = await anyio.to_thread.run_sync(_connect_as_nobody, path)
            return stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode), refused

    try:
        socket_mode, folder_mode, refused = anyio.run(look)
    finally:
        os.umask(before)
    assert (socket_mode, folder_mode) == (0o600, 0o700)
    assert refused == (errno.EACCES if os.getuid() == 0 else 0)


def _connect_as_nobody(path: Path) -> int:
    """Connect as another user; return the error number, or 0 where this process may not change its user."""
    if os.getuid() != 0:
        return 0
    program = (
        "import os, socket, sys\n"
        "place = os.open(sys.argv[1], os.O_PATH)\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(socket.socket(socket.AF_UNIX).connect_ex(f'/proc/self/fd/{place}'))\n"
    )
    return subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode


def test_a_browser_cannot_drive_it(daemon: Daemon, app: ASGIApp, tmp_path: Path):
    """The daemon listens on no network address by default."""

    def listening() -> list[str]:
        inodes = {str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()}
        rows = [
            line.split()
            for name in ("tcp", "tcp6")
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        ]
        return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]

    async def look() -> list[str]:
        async with serving(app, tmp_path / "s" / "fleet" / "daemon.sock"):
            return listening()

    assert anyio.run(look) == []


def test_a_state_directory_nobody_may_write_to_is_told(app: ASGIApp, tmp_path: Path):
    """Where no socket can be created, the error names the directory and what to do."""
    nowhere = tmp_path / "none" / "daemon.sock"

    async def serve() -> None:
        async with serving(app, nowhere):
            pass

    with pytest.raises(InfrastructureFault, match="another state directory by RINGFENCE_STATE_DIR"):
        anyio.run(serve)


def test_an_internal_error_is_logged_with_its_traceback(daemon: Daemon, capfd: pytest.CaptureFixture[str]):
    """The client sees only the type of the error; the daemon's log has the request and the traceback."""
    app = create_app(ApiContext.of_daemon(daemon))

    @app.get("/v1/broken")
    async def broken() -> None:
        raise ZeroDivisionError("a detail that clients need not know")

    response = TestClient(LocalAccess(app), raise_server_exceptions=False).get("/v1/broken")
    assert (response.status_code, "ZeroDivisionError" in response.text) == (500, True)
    assert "a detail" not in response.text
    log = capfd.readouterr().out
    assert "GET '/v1/broken': internal error: ZeroDivisionError('a detail that clients need not know')" in log
    assert "Traceback (most recent call last)" in log
