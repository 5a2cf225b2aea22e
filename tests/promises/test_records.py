"""The record of each run: what it holds, who can read it, and what is found when it was tampered with."""

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from tests.promises.product import Event, Product, read_until, says


@pytest.fixture(scope="module")
def kept(make_product: Callable[[], Product]) -> Product:
    """A product with the record of one run that is complete."""
    product = make_product()
    long = {"tools": [{"name": "write_file", "input": {"path": "long", "content": "z" * 100_000}}]}
    turns = [says("I write.", "echo two > app.py"), long, says("It is written.")]
    assert product.run(product.script(*turns), "--verify", "true").ends_as("succeeded")
    return product


@pytest.fixture(scope="module")
def lines(kept: Product) -> list[Event]:
    """The lines of its journal."""
    return kept.record()


def journal(product: Product) -> Path:
    """The file of the one record."""
    return product.file("journal", run=product.runs()[0])


def test_order(lines: list[Event]) -> None:
    """Lines are numbered from 0 without a gap; the first opens the journal, the last one seals it."""
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    assert (lines[0]["event"], lines[-1]["event"]) == ("journal.opened", "journal.sealed")


def test_chain(kept: Product, lines: list[Event]) -> None:
    """Each line holds the SHA-256 of the line before it."""
    raw = journal(kept).read_bytes().splitlines(keepends=True)
    assert lines[0]["prev"] == "0" * 64
    assert [line["prev"] for line in lines[1:]] == [sha256(line).hexdigest() for line in raw[:-1]]


def test_times(lines: list[Event]) -> None:
    """Each line has its time in UTC, in the form of RFC 3339 with microseconds."""
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"]) for line in lines)


def test_what_happened(lines: list[Event]) -> None:
    """A record has the task, the sandboxes, the conversation, each call and its result, the check and the end."""
    events = [line["event"] for line in lines]
    for name in ("job.created", "message.sent", "model.replied", "tool.called", "tool.returned", "job.ended"):
        assert name in events
    assert events.index("tool.called") < events.index("tool.returned") < events.index("job.ended")
    created = [line["data"] for line in lines if line["event"] == "sandbox.created"]
    assert [made["backend"] for made in created] == ["bubblewrap", "bubblewrap"]


def test_policy_is_recorded(lines: list[Event]) -> None:
    """A record says what the sandbox allowed: its limits, who enforces them, and that there was no network."""
    policy = next(line["data"]["policy"] for line in lines if line["event"] == "sandbox.created")
    assert policy["network"] == "none"
    assert policy["limits"]["memory"] == 2 << 30
    assert {"memory", "pids", "cpus", "disk"} <= policy["enforced"].keys()
    assert policy["egress"] == []


def test_only_the_owner_reads(kept: Product) -> None:
    """The state directory and those of runs are closed to others, and journals and the signing key are the owner's."""
    for folder in (kept.state, journal(kept).parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in (journal(kept), kept.file("public key").with_suffix(""), *kept.state.glob("**/*.db*")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_list(kept: Product) -> None:
    """`runs ls --json` has each run with its state, times, task, model, cost and whether it is sealed."""
    (row,) = kept.does("runs ls", "--json").json
    assert row["id"] == kept.runs()[0]
    assert (row["state"], row["exit_code"], row["is_sealed"], row["prompt"]) == (
        "succeeded",
        0,
        True,
        "Do it.",
    )
    assert row["started_at"].endswith("Z")
    assert row["duration_s"] > 0
    assert row["cost_usd"] > 0
    assert row["model"].startswith("scripted:")


def test_show_for_programs(kept: Product, lines: list[Event]) -> None:
    """`runs show --json` prints each event of the record as an object."""
    shown = kept.does("runs show", "last", "--json").events
    assert [event["event"] for event in shown] == [line["event"] for line in lines]


def test_show_for_people(kept: Product) -> None:
    """`runs show` prints the task, what the agent said, its commands, and how it ended."""
    out = kept.does("runs show", "last").out
    places = [out.index(text) for text in ("Do it.", "I write.", "echo two > app.py", "It is written.")]
    assert places == sorted(places)


def test_follow_ends_with_the_run(kept: Product, lines: list[Event]) -> None:
    """`runs follow` of a run that has ended prints all of it and ends."""
    assert len(kept.does("runs follow", "last", "--json").events) == len(lines)


def test_follow_prints_as_it_happens(product: Product) -> None:
    """`runs follow` prints an event while the run goes on, and ends when the run does."""
    with product.started("exec", "--", "sh", "-c", "echo in; read line", stdin=-1) as run:
        read_until(run.stdout, b"in")
        with product.started("runs follow", "last", "--json") as following:
            read_until(following.stdout, b"job.started")
            assert run.stdin is not None
            run.stdin.close()
            read_until(following.stdout, b"journal.sealed")
            assert following.wait(30) == 0


def test_export(kept: Product) -> None:
    """`runs export` prints one document with all messages, calls with their results, and the outcome."""
    found = kept.does("runs export", "last").json
    assert found["run_id"] == kept.runs()[0]
    assert found["message_count"] == len(found["messages"]) == 6
    assert [message.get("role", message.get("type")) for message in found["messages"]] == [
        "user",
        "assistant",
        "tool_call",
        "assistant",
        "tool_call",
        "assistant",
    ]
    assert found["messages"][2]["parameters"]["command"].startswith("echo two")
    assert found["messages"][2]["result"]["exit_code"] == 0
    assert found["outcome"]["state"] == "succeeded"


def test_export_to_a_file(kept: Product) -> None:
    """`--output` writes that document to a file that only its owner can read."""
    file = kept.place / "session.json"
    kept.does("runs export", "last", "--output", file)
    assert json.loads(file.read_bytes())["run_id"] == kept.runs()[0]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_session_file(kept: Product) -> None:
    """The same document lies beside the journal."""
    (run,) = kept.runs()
    assert kept.file("session", run=run).read_text().strip() == kept.does("runs export", run).out.strip()


def test_verify(kept: Product) -> None:
    """A record that is as it was written verifies with 0 as sealed, by its key, by name and by path."""
    for name in ("last", kept.runs()[0], journal(kept)):
        found = kept.does("runs verify", name, "--json").json
        assert (found["status"], found["bad_line"]) == ("sealed", None)
        assert found["signer"]


def test_verify_all(kept: Product) -> None:
    """`runs verify --all` verifies each record."""
    assert [row["status"] for row in kept.does("runs verify", "--all", "--json").json["runs"]] == ["sealed"]


TAMPERED: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a word is changed": lambda lines: [line.replace(b"It is written.", b"It is wrotten.") for line in lines],
    "a time is changed": lambda lines: [lines[0].replace(b'"time":"2', b'"time":"3', 1), *lines[1:]],
    "the end is changed": lambda lines: [line.replace(b'"state":"succeeded"', b'"state":"failed"') for line in lines],
    "a line is dropped": lambda lines: [*lines[:4], *lines[5:]],
    "two lines are swapped": lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
    "a line is doubled": lambda lines: [*lines[:5], lines[4], *lines[5:]],
    "something is added": lambda lines: [*lines, b'{"seq":99}\n'],
    "a blank is added": lambda lines: [*lines, b" "],
    "the last lines are cut off": lambda lines: lines[:-3],
    "the seal is cut off": lambda lines: lines[:-1],
    "the last line is torn": lambda lines: [*lines[:-1], lines[-1][:50]],
}  # fmt: skip


@pytest.mark.parametrize("case", TAMPERED)
def test_tampering_is_found(kept: Product, case: str) -> None:
    """Any change of a record is found: `verify` ends with 1, and says that it is broken or truncated."""
    copy = kept.place / "tampered"
    file = journal(kept)
    whole = file.read_bytes()
    assert not copy.exists()
    file.write_bytes(b"".join(TAMPERED[case](whole.splitlines(keepends=True))))
    try:
        ended = kept("runs verify", "last", "--json")
    finally:
        file.write_bytes(whole)
    assert ended.code == 1
    assert ended.json["status"] in {"broken", "truncated"}


def test_a_body_that_was_changed_is_found(kept: Product) -> None:
    """A long text lies beside the journal under its hash, and a change of it is found."""
    (body, *_) = (journal(kept).parent / "blobs").iterdir()
    whole = body.read_bytes()
    body.write_bytes(whole[:-1] + b"!")
    try:
        assert kept("runs verify", "last").code == 1
    finally:
        body.write_bytes(whole)


@pytest.mark.parametrize("name", ["session", "patch", "work"])
@pytest.mark.parametrize("change", ["edited", "removed"])
def test_every_file_of_a_record_is_verified(product: Product, name: str, change: str) -> None:
    """An edit or removal of the session, the patch or the work record is found, but for a session that is absent."""
    product.run(product.script(says("I write it.", "echo two > app.py"), says("done")))
    (run,) = product.runs()
    file = product.file(name, run=run)
    if change == "edited":
        file.write_bytes(file.read_bytes().replace(b"two", b"owt").replace(b"before", b"beefor"))
    else:
        file.unlink()
    ended = product("runs verify", run, "--json")
    if (name, change) == ("session", "removed"):
        assert (ended.code, ended.json["status"]) == (0, "sealed")
    else:
        assert (ended.code, ended.json["status"]) == (1, "broken")
        assert file.name in ended.json["reason"]


def test_a_record_without_a_journal_hides_no_other(product: Product) -> None:
    """`runs verify --all` names a record whose journal was removed, and verifies the others."""
    product.exec("true")
    product.exec("true")
    newest, other = product.runs()
    product.file("journal", run=newest).unlink()
    ended = product("runs verify", "--all")
    assert ended.code == 1
    lines = {line.split()[1]: line.split()[0] for line in ended.out.splitlines()}
    assert (lines[newest].lower(), lines[other].lower()) == ("truncated", "sealed")


def test_a_missing_run_is_found(product: Product) -> None:
    """`runs verify --all` names a run whose record is gone, with exit code 1, unless a command removed it."""
    product.exec("true")
    product.exec("true")
    removed, gone = product.runs()
    product.does("runs rm", removed, "--yes")
    assert product.does("runs verify", "--all").code == 0
    shutil.rmtree(product.file("run", run=gone))
    ended = product("runs verify", "--all")
    assert (ended.code, gone in ended.err, removed in ended.err) == (1, True, False)


def test_a_cut_chain_is_found(product: Product) -> None:
    """A chain without the last entries, and their records, misses the head that was kept elsewhere."""
    product.exec("true")
    whole = product.does("runs verify", "--all", "--json").json["chain"]
    product.does("runs verify", "--all", "--anchor", whole["head"])
    product.does("runs rm", "last", "--yes")
    product.does("runs verify", "--all", "--anchor", whole["head"])
    heads = product.file("run", run="x").parent.parent / "heads"
    heads.write_bytes(b"")
    assert product("runs verify", "--all", "--anchor", whole["head"]).code == 1


def test_what_is_not_proved_is_printed(kept: Product) -> None:
    """`runs verify` prints what a verification cannot prove, for people on stderr and for programs in its JSON."""
    assert "not proved: " in kept.does("runs verify", "last").err
    assert kept.does("runs verify", "last", "--json").json["limits"]


def test_another_key(kept: Product, product: Product) -> None:
    """A record of another machine is not taken for sealed, unless its public key is named."""
    product.exec("true")
    assert product("runs verify", journal(kept)).code == 1
    product.does("runs verify", journal(kept), "--key", kept.file("public key"))


def test_a_run_that_goes_on_has_an_open_end(product: Product) -> None:
    """The record of a run that goes on is in order, with an open end: exit code 3."""
    with product.started("exec", "--", "sh", "-c", "echo in; sleep 600") as process:
        read_until(process.stdout, b"in")
        ended = product("runs verify", "last", "--json")
    assert (ended.code, ended.json["status"]) == (3, "open")


def test_a_run_that_goes_on_is_not_removed(product: Product) -> None:
    """`runs rm` refuses a run that has not ended, and its record stays whole."""
    with product.started("exec", "--", "sh", "-c", "echo in; sleep 600") as process:
        read_until(process.stdout, b"in")
        refused = product("runs rm", "last", "--yes")
        assert refused.code != 0
        assert product.runs()[0] in refused.err
        assert product("runs verify", "last", "--json").json["status"] == "open"


def test_no_run(product: Product) -> None:
    """Where there is no run, the list is empty with exit code 0, and its stdout holds nothing else."""
    assert product.does("runs ls", "--json").json == []
    assert product.does("runs ls").stdout == b""


@pytest.mark.parametrize("command", ["runs show", "runs verify", "runs export", "runs follow"])
def test_a_run_that_is_not_there(kept: Product, command: str) -> None:
    """A run that is not there is a usage error that names it."""
    kept(command, "ffffffff").fails_as("usage", "ffffffff")


def test_number_of_runs(kept: Product, product: Product) -> None:
    """`-n` bounds how many runs are listed, the newest first."""
    for word in ("one", "two", "three"):
        product.exec("echo", word)
    rows = product.does("runs ls", "--json", "-n", "2").json
    assert [row["prompt"].split()[-1] for row in rows] == ["three", "two"]


def test_old_runs_are_collected(product: Product) -> None:
    """`gc` removes records that are old enough, and keeps the newest as it is told; `--dry-run` removes none."""
    product.exec("true")
    product.exec("true")
    product.does("gc", "--older-than", "1ms", "--keep", "1", "--dry-run")
    newest, _ = product.runs()
    product.does("gc", "--older-than", "1ms", "--keep", "1")
    assert product.runs() == [newest]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_a_full_disk_is_cleared(product: Product) -> None:
    """`gc` makes room on a disk that is so full that no database can be written."""
    product.state.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "tmpfs", str(product.state)], check=True
    )
    try:
        product.exec("head", "-c", "900000", "/dev/zero")
        with suppress(OSError), (product.state / "fill").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        product.does("gc", "--dry-run")
        assert "--older-than" in product("gc").fails_as("infrastructure")
        product.does("gc", "--older-than", "1ms", "--keep", "0")
        assert product.runs() == []
    finally:
        subprocess.run(["umount", "-l", str(product.state)], check=True)


def test_young_runs_stay(product: Product) -> None:
    """`gc` by itself removes no run of today."""
    product.exec("true")
    product.does("gc")
    assert len(product.runs()) == 1


def test_state_directory_is_named(product: Product) -> None:
    """`RINGFENCE_STATE_DIR` names another state directory, and nothing is written to the usual one."""
    other = product.place / "other"
    assert product("exec", "--", "true", RINGFENCE_STATE_DIR=other).code == 0
    assert len(list((other / "runs").iterdir())) == 1
    assert not product.state.exists()
