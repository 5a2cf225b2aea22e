"""Going on with an earlier run."""

from pathlib import Path

import pytest

from ringfence.errors import UsageError
from ringfence.events import JobCreated
from ringfence.job.resumed_run import differences, last_run_of, run_of
from ringfence.journal import Journal, run_dir


def _created(**configuration: object) -> JobCreated:
    return JobCreated(
        job_id="r", session_id="s", prompt="p", model="a", runtime="claude-cli", toolset="", workspace="/w",
        version="1", configuration=configuration,
    )  # fmt: skip


def test_what_differs_is_told_in_words():
    """Each setting by its name; the model once, as what was taken."""
    earlier = _created(run={"model": "x"}, sandbox={"mode": None}, limits={"turns": 60})
    told = differences(
        earlier,
        model="b",
        configuration={"run": {"model": "b"}, "sandbox": {"mode": "clone"}, "limits": {"turns": 60}},
    )
    assert told == ["model: was 'a', is 'b'", "sandbox.mode: was not set, is 'clone'"]


def test_the_runtime_is_the_sessions_own_and_no_difference():
    """Whoever names none goes on with it, though the settings have another."""
    earlier = _created(run={"runtime": "claude-cli"})
    assert differences(earlier, model="a", configuration={"run": {"runtime": "api"}}) == []


SESSION = "5f29ccd4-aacc-443b-847e-23f201c8a2bd"


@pytest.mark.parametrize(
    ("file", "step"),
    [
        (
            f"claude-0123456789abcdef-0/files/projects/-w/{SESSION}.jsonl",
            f"`ringfence claude --resume {SESSION}`",
        ),
        (
            f"codex-0123456789abcdef-0/files/sessions/2026/01/02/rollout-2026-01-02T03-04-05-{SESSION}.jsonl",
            f"`ringfence codex resume {SESSION}`",
        ),
    ],
    ids=["claude", "codex"],
)
def test_a_session_on_a_terminal_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, step: str
):
    """Its id was told by the program, and means nothing to a task."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = tmp_path / "ringfence" / "sessions" / f"terminal-{file}"
    kept.parent.mkdir(parents=True)
    kept.touch()
    with pytest.raises(UsageError) as caught:
        run_of(SESSION[:13])
    assert step in str(caught.value)


def test_what_is_neither_a_run_nor_a_session_is_told_to_be_neither(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Both were looked for."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(
        UsageError, match=f"no unattended session '{SESSION}', and there is no run '{SESSION}'"
    ):
        run_of(SESSION)


@pytest.mark.parametrize(
    ("reference", "meant"),
    [
        ("2026-01-28", "fits 5 runs"),
        ("e", "fits 2 runs"),
        ("5f29", "fits 2 sessions"),
        ("5f29ccd4", 2),
        (SESSION, 2),
        ("7", 4),
        ("ea", 2),
    ],
)
def test_no_run_is_picked_where_several_are_meant(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reference: str, meant: str | int
):
    """Going on with the wrong one costs more than another word."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    runs = [
        f"2026-01-28T10-00-0{number}-{last}000000"
        for number, last in enumerate(("ab", "cd", "ea", "eb", "12"))
    ]
    sessions = [runs[0], "5f2900000000", SESSION, "11", "7777"]
    for run_id, session in zip(runs, sessions, strict=True):
        created = JobCreated(
            job_id=run_id, session_id=session, prompt="p", model="a", runtime="claude-cli", toolset="",
            workspace="/w", version="1", configuration={},
        )  # fmt: skip
        with Journal.create(run_dir(run_id), run_id) as journal:
            journal.append(created)
            journal.seal()
    if isinstance(meant, int):
        assert run_of(reference).run_id == runs[meant]
        return
    with pytest.raises(UsageError, match=f"{meant}.*; give more of its id"):
        run_of(reference)


@pytest.mark.parametrize("runtime", ["standing", "exec", "shell"])
def test_a_sandbox_without_an_agent_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime: str
):
    """What goes on is the newest agent's run, whatever was opened on the workspace since."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number, each in enumerate(("api", runtime)):
        run_id = f"2026-01-28T10-00-0{number}-ab000000"
        created = JobCreated(
            job_id=run_id, session_id=run_id, prompt="p", model="a", runtime=each, toolset="", workspace="/w",
            version="1", configuration={},
        )  # fmt: skip
        with Journal.create(run_dir(run_id), run_id) as journal:
            journal.append(created)
            journal.seal()
    assert last_run_of(Path("/w")).run_id == "2026-01-28T10-00-00-ab000000"
    with pytest.raises(UsageError, match="no agent's"):
        run_of("2026-01-28T10-00-01")
