"""`ringfence run`: what each way of ending comes to."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.journal import resolve, runs_dir

Cli = Callable[..., Any]


@pytest.fixture
def run(ringfence: Cli, workspace: Path) -> Cli:
    """Run a task in the workspace."""
    return lambda model, *options: ringfence("run", "do it", "-C", workspace, "--model", model, *options)


def _state(ended: Any) -> str:
    ours = [line for line in ended.out.splitlines() if not line.startswith((" ", "|", "check:"))]
    return str(next(line for line in ours if ": " in line))


@pytest.mark.slow
def test_an_agent_without_a_check_is_unverified(run: Cli, script: Cli, says: Cli):
    """What only the agent says is no success, but no failure either."""
    ended = run(script(says()))
    assert (ended.code, _state(ended)) == (0, "unverified: the agent says it is done; nothing checked it")


def test_a_green_check_succeeds_in_a_new_sandbox(run: Cli, script: Cli, says: Cli, events: Cli):
    """The check runs where the agent is dead."""
    ended = run(
        script(says("x", "touch made; touch /tmp/old"), says()),
        "--verify",
        "test -e made && ! test -e /tmp/old",
    )
    created = [event["data"]["purpose"] for event in events() if event["event"] == "sandbox.created"]
    assert (ended.code, created[0], created[-1]) == (0, "agent", "verify")


@pytest.mark.slow
def test_an_answer_after_which_nothing_is_asked_passes_the_limit(run: Cli, script: Cli, says: Cli):
    """The limit is asked before each request, and a prompt counts when it is answered."""
    assert run(script(says()), "--max-tokens", "10").code == 0
    assert run(script(says("x", "true"), says()), "--max-tokens", "10").code == 5


@pytest.mark.slow
def test_a_red_check_exits_3(run: Cli, script: Cli, says: Cli):
    """The agent's word does not count against a check."""
    ended = run(script(says("all is green!")), "--verify", "echo broken; exit 9")
    assert (ended.code, _state(ended)) == (
        3,
        "check_red: the check failed (exit code 9): echo broken; exit 9",
    )


@pytest.mark.slow
def test_require_verified_exits_3_without_a_check(run: Cli, script: Cli, says: Cli):
    """Who asks for a check does not get away with none."""
    assert run(script(says()), "--require-verified").code == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--max-turns", "1"],
            "limit 'turns' reached: 1 of 1; raise it with --max-turns, or limits.turns in",
        ),
        *(
            pytest.param([option, number], f"raise it with {option}", marks=pytest.mark.slow)
            for option, number in (
                ("--max-tool-calls", "1"),
                ("--max-tokens", "10"),
                ("--max-cost-usd", "0.0000001"),
            )
        ),
    ],
    ids=["turns", "tool-calls", "tokens", "cost"],
)
def test_a_limit_exits_5_and_names_its_option(
    run: Cli, script: Cli, says: Cli, options: list[str], told: str
):
    """Reaching a bound is an outcome of its own."""
    ended = run(script(says("x", "true"), says("x", "true"), says()), *options)
    assert (ended.code, told in ended.out) == (5, True)


@pytest.mark.slow
def test_work_of_a_stopped_agent_is_kept(run: Cli, script: Cli, says: Cli, workspace: Path):
    """A limit loses nothing that was made."""
    assert "1 file changed" in run(script(says("x", "touch made"), says("x", "true")), "--max-turns", "1").out


def test_an_unknown_price_refuses_a_cost_limit_before_anything(run: Cli, workspace: Path, tmp_path: Path):
    """No sandbox is opened for a limit that cannot be kept."""
    file = tmp_path / "priceless.yaml"
    file.write_text("turns: [{text: hi}]")
    ended = run(f"scripted:{file}", "--max-cost-usd", "1")
    assert ended.code == 4
    with pytest.raises(Exception, match="no run"):
        resolve("last")


@pytest.mark.slow
def test_the_wall_clock_exits_124(run: Cli, script: Cli, says: Cli):
    """Time is a limit with a code of its own."""
    ended = run(script(says("x", "sleep 60")), "--timeout", "300ms")
    assert (ended.code, "raise it with --timeout, or limits.wall_clock in" in ended.out) == (124, True)


@pytest.mark.slow
def test_a_wrong_key_is_told_once(run: Cli, script: Cli):
    """401 is not retried."""
    ended = run(script({"error": {"status": 401, "message": "invalid x-api-key", "times": 9}}))
    assert (ended.code, ended.out.count("x-api-key"), "again in" in ended.out) == (77, 1, False)


@pytest.mark.slow
def test_a_model_that_declines_fails(run: Cli, script: Cli):
    """A refusal is an answer."""
    assert run(script({"text": "no", "stop_reason": "refusal"})).code == 1


@pytest.mark.slow
def test_output_that_is_no_text_is_kept(run: Cli, script: Cli, says: Cli, events: Cli):
    """Bytes that are no UTF-8 break neither journal nor view."""
    ended = run(script(says("x", r"printf '\xff\x00\x1b[31m\xe2\x80\xae'"), says()))
    returned = next(event for event in events() if event["event"] == "tool.returned")
    assert (ended.code, "\ufffd" in json.dumps(returned, ensure_ascii=False)) == (0, True)
    assert r"\x00\x1b[31m\u202e" in ended.out


@pytest.mark.slow
def test_a_prompt_of_300_kib_works_from_a_file(
    ringfence: Cli, workspace: Path, script: Cli, says: Cli, tmp_path: Path
):
    """No prompt is on anybody's command line."""
    file = tmp_path / "prompt"
    file.write_text("x" * 300_000 + "THE END")
    model = script(says(expect={"last_user_text": "xTHE END"}))
    assert ringfence("run", "--file", file, "-C", workspace, "--model", model).code == 0


@pytest.mark.slow
def test_a_prompt_of_300_kib_works_from_stdin(
    start: Cli, workspace: Path, script: Cli, says: Cli, tmp_path: Path
):
    """- reads stdin."""
    file = tmp_path / "prompt"
    file.write_text("x" * 300_000 + "THE END")
    model = script(says(expect={"last_user_text": "xTHE END"}))
    with file.open("rb") as stdin:
        process = start("run", "-", "-C", workspace, "--model", model, stdin=stdin)
    assert process.wait(60) == 0


@pytest.mark.slow
def test_a_read_only_workspace_stays_as_it_is(run: Cli, script: Cli, says: Cli, workspace: Path):
    """Mode read_only is kept by the kernel."""
    ended = run(
        script(says("x", "touch made"), says(expect={"last_tool_result": "Read-only"})), "--mode", "read_only"
    )
    assert (ended.code, (workspace / "made").exists()) == (0, False)


@pytest.mark.slow
def test_a_folder_without_git_works(ringfence: Cli, place: Path, script: Cli, says: Cli):
    """A workspace need not be a repository."""
    ended = ringfence("run", "x", "-C", place, "--model", script(says("x", "touch made"), says()))
    assert (ended.code, "1 file changed" in ended.out) == (0, True)


@pytest.mark.slow
def test_json_gives_one_event_a_line(run: Cli, script: Cli, says: Cli):
    """Stdout is data: from job.created to job.ended."""
    lines = [json.loads(line) for line in run(script(says("x", "true"), says()), "--json").out.splitlines()]
    assert (lines[0]["event"], lines[-1]["event"]) == ("job.created", "job.ended")


@pytest.mark.slow
def test_every_run_leaves_a_session_file(run: Cli, script: Cli, says: Cli):
    """The record of seed form lies beside the journal."""
    run(script(says("x", "echo hello"), says()))
    path = resolve("last")
    session = json.loads((path / f"{path.name}.json").read_text())
    call = next(message for message in session["messages"] if message.get("type") == "tool_call")
    assert (call["result"]["stdout"], call["reasoning"]) == ("hello\n", "needed")


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--sandbox", "docker"], 2, "needs an image"),
        (["--image", "x:latest"], 4, "'x:latest' is refused"),
    ],
    ids=["none", "latest"],
)
def test_a_wrong_image_is_refused_before_anything(
    ringfence: Cli, workspace: Path, options: list[str], code: int, told: str
):
    """Before a credential is looked for, and without a record."""
    for command in (["run", "x"], ["exec"]):
        ended = ringfence(
            *command, "-C", workspace, *options, *(["--", "true"] if command == ["exec"] else [])
        )
        assert (ended.code, told in ended.err) == (code, True)
    assert not list(runs_dir().glob("*"))
