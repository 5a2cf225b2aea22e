"""Records, changes and events of jobs and of single runs, as the API reports them."""

import getpass
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.testclient import TestClient
from tests.fleet.daemon.test_api import daemon_of
from tests.fleet.fleet_files import FleetFiles

from ringfence.errors import RecordError, RingfenceError
from ringfence.fleet.api.app import create_local_app
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.daemon.http_server import serving
from ringfence.fleet.queries.patches import read_files, read_lines
from ringfence.fleet.store.attempts import Attempts
from ringfence.fleet.store.job import ACTIVE
from ringfence.fleet.store.tables import JOBS
from ringfence.journal import Journal, run_dir

_COMMAND = "printf 'one\\ntwo\\n' > new.txt; echo '#!/bin/sh' > .envrc"
_WORK = {"tools": [{"run": _COMMAND}]}


@pytest.mark.slow
def test_a_job_is_verified_applied_and_rejected(crew: FleetFiles):
    """A job's record verifies; its changes are shown by file and line, applied to the workspace, and rejected."""
    script = crew.script("work", _WORK, {"text": "done"})
    agent = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}, "run": {"model": script}}
    crew.write(fleet={"name": "c", "drain": "1s"}, agents={"a": agent})
    crew.up()
    job = crew.ends(crew.trigger("a"))["id"]
    record = crew.client.get("jobs", job, "record")
    assert (record["verification"]["status"], record["verification"]["findings"]) == ("sealed", [])
    assert (record["run"]["changes_state"], record["run"]["state"]) == ("pending", "unverified")
    diff = crew.client.get("jobs", job, "diff")
    assert [(each["path"], each["kind"], each["insertions"]) for each in diff["files"]] == [
        (".envrc", "added", 1),
        ("new.txt", "added", 2),
    ]
    assert [each["path"] for each in diff["files"] if each["warning"]] == [".envrc"]
    assert (diff["total"], diff["warnings"]) == (2, [".envrc"])
    assert [each["path"] for each in crew.client.get("jobs", job, "diff", offset=1)["files"]] == ["new.txt"]
    lines = crew.client.get("jobs", job, "diff", path="new.txt", offset=6, limit=2)
    assert (lines["lines"], lines["total"]) == (["+one", "+two"], 8)
    names = [json.loads(line)["event"] for line in crew.client.lines("jobs", job, "events")]
    assert (names[0], names[-1]) == ("journal.opened", "journal.sealed")
    last = [json.loads(line)["event"] for line in crew.client.lines("jobs", job, "events", start=-2)]
    assert last == names[-2:]
    some = [json.loads(line)["seq"] for line in crew.client.lines("jobs", job, "events", start=3, limit=2)]
    assert some == [3, 4]
    applied = crew.client.post("jobs", job, "apply", body={})
    assert (applied["state"], applied["files"]) == ("applied", [".envrc", "new.txt"])
    assert (crew.project / "new.txt").read_text() == "one\ntwo\n"
    rejected = crew.client.post("jobs", job, "reject", body={})
    assert (rejected["state"], (crew.project / "new.txt").exists()) == ("rejected", False)
    assert crew.client.get("jobs", job, "record")["verification"]["status"] == "sealed"
    assert f"job {job}: its changes are rejected, by {getpass.getuser()}" in crew.log
    assert crew.client.get("runs") == []
    journal = crew.state / "runs" / record["run"]["id"] / "journal.jsonl"
    text = journal.read_text()
    journal.write_text(text.replace('"turns":2', '"turns":3'))
    broken = crew.client.get("jobs", job, "record")["verification"]
    assert (broken["status"], broken["bad_line"] is not None) == ("broken", True)


@pytest.mark.slow
def test_jobs_are_ready_until_a_person_decides(crew: FleetFiles):
    """A job that is done and left changes is listed as ready until they are applied or rejected."""
    script = crew.script("work", _WORK, {"text": "done"})
    agent = {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}, "run": {"model": script}}
    idle = {**agent, "run": {"model": crew.script("idle", {"text": "nothing to do"})}}
    crew.write(fleet={"name": "c", "drain": "1s"}, agents={"a": agent, "idle": idle})
    crew.up()
    crew.ends(crew.trigger("idle"))
    first, second = crew.ends(crew.trigger("a")), crew.ends(crew.trigger("a"))

    def ready() -> list[str]:
        return [each["id"] for each in crew.does("job", "ls", "--ready", "--json").json["jobs"]]

    assert ready() == [second["id"], first["id"]]
    crew.does("apply", first["run_id"])
    assert ready() == [second["id"]]
    crew.client.post("jobs", second["id"], "reject", body={})
    assert ready() == []
    assert [each["is_ready_to_apply"] for each in crew.client.get("jobs", agent="a")] == [False, True]


@pytest.mark.slow
def test_single_runs_are_shown_and_undone(crew: FleetFiles):
    """Runs without a fleet are listed in pages with their records, and their changes are applied and undone."""
    script = crew.script("work", _WORK, {"text": "done"})
    runs = []
    for _ in range(2):
        crew.does("run", "--model", script, "--mode", "clone", "--no-verify", "do it")
        runs.append(crew.does("runs", "ls", "--json").json[0]["id"])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in crew.environment.items():
            patch.setenv(name, value)
        client = TestClient(create_local_app(ApiContext(crew.state)))
        assert [run["id"] for run in client.get("/v1/runs").json()] == runs[::-1]
        assert [run["id"] for run in client.get(f"/v1/runs?before={runs[1]}").json()] == runs[:1]
        first = runs[0][-8:]
        record = client.get(f"/v1/runs/{first}/record").json()
        assert (record["verification"]["status"], record["run"]["changes_state"]) == ("sealed", "pending")
        assert [each["path"] for each in client.get(f"/v1/runs/{first}/diff").json()["files"]] == [
            ".envrc",
            "new.txt",
        ]
        assert client.post(f"/v1/runs/{first}/undo", json={}).status_code == 409
        other = client.post(f"/v1/runs/{first}/apply", json={"run_id": runs[1]})
        assert (other.status_code, (crew.project / "new.txt").exists()) == (409, False)
        applied = client.post(f"/v1/runs/{first}/apply", json={"run_id": runs[0]}).json()
        assert (applied["state"], (crew.project / "new.txt").exists()) == ("applied", True)
        undone = client.post(f"/v1/runs/{first}/undo", json={}).json()
        assert (undone["state"], (crew.project / "new.txt").exists()) == ("undone", False)
        assert client.get("/v1/runs/nothing").status_code == 404
        assert client.post("/v1/reload").status_code == 503
        assert "ringfence fleet up" in client.post("/v1/reload").json()["error"]["message"]
        assert client.get("/v1/jobs").json() == client.get("/v1/agents").json() == []
        assert client.get("/v1/status").json()["fleet"] is None


def test_a_record_on_another_machine_is_named(tmp_path: Path):
    """A job whose record is on another machine answers 409 and names the machine, for reading and for applying."""
    daemon = daemon_of(tmp_path)
    client = TestClient(create_local_app(ApiContext.of_daemon(daemon)))
    job = client.post("/v1/agents/a/jobs", json={}).json()["job"]["id"]
    assert client.get(f"/v1/jobs/{job}/record").status_code == 404
    assert client.get(f"/v1/jobs/{job}/events").text == ""

    async def run() -> None:
        await daemon.database.write(
            lambda connection: connection.execute(JOBS.update().values(state=ACTIVE[0]))
        )
        assert await Attempts(daemon.database).begin(job, worker="w", host="east-7") is not None

    anyio.run(run)
    for method, path in (
        ("GET", "record"),
        ("GET", "diff"),
        ("GET", "events"),
        ("POST", "apply"),
        ("POST", "reject"),
    ):
        body: Any = {} if method == "POST" else None
        refused = client.request(method, f"/v1/jobs/{job}/{path}", json=body)
        assert refused.status_code == 409, path
        assert "is on machine 'east-7'" in refused.json()["error"]["message"]
    assert client.get(f"/v1/jobs/{job}/record?attempt=2").status_code == 404
    daemon.database.close()


_PATCH = b"""\
diff --git a/a b b/a b
index 1..2 100644
--- a/a b
+++ b/a b
@@ -1,3 +1,3 @@
 diff --git a/x b/x
-diff --git a/y b/y
+@@ -1,9 +1,9 @@
 end
\\ No newline at end of file
diff --git "a/caf\\303\\251\\377" "b/caf\\303\\251\\377"
new file mode 100755
index 0..1
--- /dev/null
+++ "b/caf\\303\\251\\377"
@@ -0,0 +1 @@
+x
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1,2 +0,0 @@
--- a/gone
-two
diff --git a/mode b/mode
old mode 100644
new mode 100755
diff --git a/image.png b/image.png
index 0..1 100644
GIT binary patch
literal 4
LcmZQzU|?VX0096101

literal 0
HcmV?d00001

"""


def test_a_client_that_leaves_ends_the_wait_for_a_record(tmp_path: Path):
    """The events of a waiting job are a response at once, whose tasks end when the client closes the connection."""
    daemon = daemon_of(tmp_path)
    app, path = create_local_app(ApiContext.of_daemon(daemon)), tmp_path / "api.sock"
    job = TestClient(app).post("/v1/agents/a/jobs", json={}).json()["job"]["id"]
    request = f"GET /v1/jobs/{job}/events?follow=true HTTP/1.1\r\nHost: x\r\n\r\n"

    async def leave() -> None:
        async with serving(app, path):
            before = len(anyio.get_running_tasks())
            async with await anyio.connect_unix(path) as stream:
                await stream.send(request.encode())
                with anyio.fail_after(20):
                    assert (await stream.receive()).startswith(b"HTTP/1.1 200 OK")
                assert len(anyio.get_running_tasks()) > before
            with anyio.fail_after(20):
                while len(anyio.get_running_tasks()) > before:  # noqa: ASYNC110 -- nothing reports the end of a task
                    await anyio.sleep(0.05)

    anyio.run(leave)
    daemon.database.close()


def _patched(folder: Path, patch: bytes) -> Path:
    (folder / "work.patch").write_bytes(patch)
    return folder


def test_a_patch_is_split_into_its_files(tmp_path: Path):
    """Names, kinds and line counts are right, whatever the changed lines contain."""
    run = _patched(tmp_path, _PATCH)
    found = [
        (each.path, each.kind, each.insertions, each.deletions, each.is_binary) for each in read_files(run)
    ]
    assert found == [
        ("a b", "modified", 1, 1, False),
        ("café\\xff", "added", 1, 0, False),
        ("gone", "deleted", 0, 2, False),
        ("mode", "modified", 0, 0, False),
        ("image.png", "modified", 0, 0, True),
    ]
    assert read_files(run)[3].mode == "100755"
    page = read_lines(run, "a b", offset=4, limit=2)
    assert (page.lines, page.total) == (["@@ -1,3 +1,3 @@", " diff --git a/x b/x"], 10)
    assert read_lines(run, "image.png", offset=0, limit=9).lines[-1].startswith("index")
    with pytest.raises(RecordError, match="has no file 'none'"):
        read_lines(run, "none", offset=0, limit=1)


def test_a_long_diff_is_read_by_pages(tmp_path: Path):
    """A page of a diff of 50,000 lines holds the requested lines with their numbers; a line that is too long is cut."""
    body = b"".join(b"+line %d\n" % number for number in range(50_000)) + b"+" + b"x" * 9000 + b"\n"
    run = _patched(tmp_path, b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -0,0 +1,50001 @@\n" + body)
    (file,) = read_files(run)
    assert file.insertions == 50_001
    page = read_lines(run, "f", offset=40_004, limit=3)
    assert page.lines == ["+line 40000", "+line 40001", "+line 40002"]
    assert (page.total, page.numbers) == (50_005, (0, 40_001))
    assert read_lines(run, "f", offset=3, limit=1).numbers is None
    (last,) = read_lines(run, "f", offset=50_004, limit=5).lines
    assert len(last) < 4100


def test_a_page_of_a_large_diff_takes_little_memory(tmp_path: Path):
    """Neither many lines nor a line of 16 MiB are read into memory as a whole."""
    head = b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -0,0 +1,100001 @@\n"
    run = _patched(tmp_path, head + b"+" + b"x" * 16 * 1024**2 + b"\n" + b"+a line\n" * 100_000)
    tracemalloc.start()
    try:
        (file,) = read_files(run)
        page = read_lines(run, "f", offset=4, limit=2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (file.insertions, page.total, page.lines[1]) == (100_001, 100_005, "+a line")
    assert peak < 1024**2


def test_a_patch_over_the_limit_is_refused(tmp_path: Path):
    """A patch that is larger than any patch that a run exports is not read."""
    run = _patched(tmp_path, _PATCH)
    os.truncate(run / "work.patch", 256 * 1024**2 + 1)
    with pytest.raises(RecordError, match="the limit of patches"):
        read_files(run)


def test_a_link_in_place_of_the_patch_is_not_followed(tmp_path: Path):
    """An agent may put a link in place of the patch; only a regular file is read."""
    (tmp_path / "secret").write_text("diff --git a/x b/x\n")
    (tmp_path / "work.patch").symlink_to(tmp_path / "secret")
    with pytest.raises(RingfenceError):
        read_files(tmp_path)


def test_runs_are_listed_by_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The newest runs come first, and the next page is older than the last run of the page."""
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "s"))
    names = [f"2026-11-28T10-00-0{number}-0123abcd" for number in range(5)]
    for name in names:
        with Journal.create(run_dir(name), name) as journal:
            journal.seal()
    daemon = daemon_of(tmp_path)
    client = TestClient(create_local_app(ApiContext.of_daemon(daemon)))
    first = [each["id"] for each in client.get("/v1/runs?limit=3").json()]
    second = [each["id"] for each in client.get(f"/v1/runs?limit=3&before={first[-1]}").json()]
    assert (first, second) == (names[:1:-1], names[1::-1])
    daemon.database.close()
