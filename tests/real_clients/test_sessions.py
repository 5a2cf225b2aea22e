"""Sessions of the real clients: gone on with, forked, found again after a crash, refused where they do not belong."""

import json
import os
import shutil
import signal
from pathlib import Path

import anyio
import pytest

from ringfence.testing.scripted_model import in_prompt, parse_script

from .clients import Client, Ended, task_of
from .conftest import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
OTHER = "00000000-0000-4000-8000-000000000000"
CLIENTS = pytest.mark.parametrize("name", ["claude", "codex"])


def says(word: str) -> str:
    """A prompt whose answer is one word."""
    return f"The word is {word}. {in_prompt(parse_script(f'turns: [{{text: {word}}}]'))}"


def session_of(ended: Ended) -> str:
    """The session that a run kept."""
    return str(ended.named("session.kept")[-1]["session_id"])


def asked_last(lab: Lab) -> str:
    """What the model was asked at last."""
    return json.dumps(lab.server.requests[-1].body)


@CLIENTS
async def test_a_session_is_gone_on_with(lab: Lab, workspace: Path, name: str):
    """In another sandbox, with what was said in the first one; it stays one session."""
    first = await lab.task(name, says("apple"), workspace)
    assert first.code == 0, first
    second = await lab.task(name, says("pear"), workspace, "--continue")
    assert second.code == 0, second
    assert "The word is apple" in asked_last(lab)
    assert session_of(second) == session_of(first)
    assert second.named("session.resumed")[0]["differences"] == []


@CLIENTS
async def test_a_forked_session_is_another(lab: Lab, workspace: Path, name: str):
    """It knows what was said before; the one that it comes from does not know what is said in it."""
    first = await lab.task(name, says("apple"), workspace)
    fork = await lab.task(name, says("pear"), workspace, "--resume", session_of(first), "--fork")
    assert fork.code == 0, fork
    assert "The word is apple" in asked_last(lab)
    assert session_of(fork) != session_of(first)
    third = await lab.task(name, says("plum"), workspace, "--resume", session_of(first))
    assert third.code == 0, third
    assert "The word is apple" in asked_last(lab)
    assert "The word is pear" not in asked_last(lab)


@CLIENTS
async def test_a_session_is_gone_on_with_after_a_kill(
    lab: Lab, clients: dict[str, Client], workspace: Path, name: str
):
    """Ringfence was killed in the middle of a turn; what was said until then is there."""
    waits = parse_script("turns: [{text: I begin., tools: [{run: 'touch begun; sleep 60'}]}, {text: done}]")
    command = task_of(clients, name, f"The word is apple. {in_prompt(waits)}", workspace)
    async with await anyio.open_process(command, env={**os.environ, **lab.environment}) as process:
        with anyio.fail_after(60):
            while not (workspace / "begun").exists() or not list(lab.state.rglob("session.json")):  # noqa: ASYNC110 -- others write them
                await anyio.sleep(0.05)
            await anyio.sleep(2)  # as long as what it remembers may stay inside
        process.send_signal(signal.SIGKILL)
        await process.wait()
    ended = await lab.task(name, says("pear"), workspace, "--continue")
    assert ended.code == 0, ended
    assert "The word is apple" in asked_last(lab)


async def test_a_session_stays_with_its_workspace(lab: Lab, workspace: Path, tmp_path: Path):
    """Elsewhere it is refused, and the other one named."""
    first = await lab.task("claude", says("apple"), workspace)
    other = tmp_path / "other"
    other.mkdir()
    ended = await lab.task("claude", says("pear"), other, "--mode", "clone", "--resume", session_of(first))
    assert (ended.code, str(workspace) in ended.err) == (2, True), ended


async def test_a_session_stays_with_its_runtime(lab: Lab, workspace: Path):
    """Another client could not read it."""
    first = await lab.task("claude", says("apple"), workspace)
    ended = await lab.task("codex", says("pear"), workspace, "--resume", session_of(first))
    assert (ended.code, "--runtime claude-cli" in ended.err) == (2, True), ended


async def test_what_differs_is_told(lab: Lab, workspace: Path):
    """The setting, as it was and as it is."""
    await lab.task("claude", says("apple"), workspace)
    second = await lab.task("claude", says("pear"), workspace, "--continue", "--max-turns", "7")
    assert second.named("session.resumed")[0]["differences"] == ["limits.turns: was 60, is 7"]


@CLIENTS
async def test_a_session_that_the_client_does_not_find_is_begun_anew(lab: Lab, workspace: Path, name: str):
    """Once, and the record says so."""
    first = await lab.task(name, says("apple"), workspace)
    files = lab.state / "ringfence" / "sessions" / session_of(first) / "files"
    theirs = first.named("session.kept")[-1]["client_session_id"]
    for path in files.rglob("*.jsonl"):
        other = path.with_name(path.name.replace(theirs, OTHER))
        other.write_text(path.read_text().replace(theirs, OTHER))
        path.unlink()
    ended = await lab.task(name, says("pear"), workspace, "--continue")
    assert ended.code == 0, ended
    assert len(ended.named("session.lost")) == 1
    assert "The word is apple" not in asked_last(lab)
    third = await lab.task(name, says("plum"), workspace, "--continue")
    assert third.named("session.lost") == []
    assert "The word is pear" in asked_last(lab)


async def test_a_session_outlives_the_records_of_its_earlier_runs(lab: Lab, workspace: Path):
    """The client remembers by itself, so they may be removed."""
    first = await lab.task("claude", says("apple"), workspace)
    await lab.task("claude", says("pear"), workspace, "--continue")
    shutil.rmtree(lab.state / "ringfence" / "runs" / first.named("job.created")[0]["job_id"])
    third = await lab.task("claude", says("plum"), workspace, "--continue")
    assert third.code == 0, third
    assert "The word is apple" in asked_last(lab)


async def test_a_run_whose_client_kept_nothing_is_passed_over(lab: Lab, workspace: Path):
    """`--continue` goes on with the session before it."""
    first = await lab.task("claude", says("apple"), workspace)
    empty = await lab.task("claude", "x", workspace, "--cli-arg=--no-such-flag")
    assert empty.code == 78, empty
    third = await lab.task("claude", says("plum"), workspace, "--continue")
    assert session_of(third) == session_of(first)
    assert "The word is apple" in asked_last(lab)
