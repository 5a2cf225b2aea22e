"""Going on with an earlier run."""

from ringfence.events import JobCreated
from ringfence.job.continuing import differences


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
