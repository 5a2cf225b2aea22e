"""The conversion of single keys of herdctl agents."""

from typing import Any

import pytest
from tests.fleet.herdctl.conftest import Read, outcome
from tests.fleet.herdctl.keys import lay

from ringfence.fleet.config.model import CommandHook
from ringfence.fleet.herdctl.conversion import valid_name


def _agent(path: str, value: Any) -> Any:
    values: dict[str, Any] = {}
    lay(values, path, value)
    return outcome({}, values).agents["a"]


@pytest.mark.parametrize(
    ("said", "every"),
    [("5m", 300), ("1 H", 3600), (" 2D ", 172_800), ("30s", 30)],
)
def test_intervals(read: Read, said: str, every: float):
    """Intervals are accepted in each spelling that herdctl accepts."""
    text = f"name: a\nschedules: {{s: {{type: interval, interval: '{said}'}}}}\n"
    assert read("agents: [{path: a.yaml}]", a=text).agents["a"].settings.schedules["s"].every == every


def test_schedules(read: Read):
    """Cron expressions, prompts and disabled schedules are kept under the nearest valid names, which stay distinct."""
    fleet = read(
        "agents: [{path: a.yaml}]",
        a="name: a\nschedules:\n  'Every Day': {type: cron, expression: '@daily', prompt: Hi}\n"
        "  every-day: {type: cron, cron: '0 9 * * MON', enabled: false}\n",
    )
    schedules = fleet.agents["a"].settings.schedules
    assert [(name, each.cron, each.is_enabled) for name, each in schedules.items()] == [
        ("every-day", "@daily", True),
        ("every-day-2", "0 9 * * MON", False),
    ]
    assert schedules["every-day"].prompt == "Hi"


@pytest.mark.parametrize(
    ("timeout", "within"), [("24h", 86400), ("1.5h", 5400), ("2w", 14 * 86400), ("30m", 1800)]
)
def test_sessions(read: Read, timeout: str, within: float):
    """`session.timeout` becomes a session that is resumed within the same time."""
    session = (
        read("agents: [{path: a.yaml}]", a=f"name: a\nsession: {{timeout: {timeout}}}\n").agents["a"].settings
    )
    assert (session.session.policy, session.session.within) == ("resume", within)


def test_jobs_side_by_side_resume_no_session(read: Read):
    """An agent with parallel jobs keeps its concurrency; a note says that its sessions are not resumed."""
    agent = {"instances": {"max_concurrent": 3}, "session": {"timeout": "12h", "max_turns": 5}}
    found = outcome({}, agent)
    assert found.named["session.timeout"] == "left_out"
    text = f"name: a\ninstances: {agent['instances']}\nsession: {agent['session']}\n"
    settings = read("agents: [{path: a.yaml}]", a=text).agents["a"].settings
    assert (settings.concurrency, settings.session.policy, settings.limits.turns) == (3, "fresh", 5)


def test_the_session_that_herdctl_resumes_by_default_is_named():
    """A note names herdctl's default of resuming sessions for a day, unless `session.timeout` is set."""
    assert outcome({}, {}).named == {"session.timeout": "changed"}
    assert "each job starts a new session" in str(outcome({}, {}).notes)
    assert "each job starts a new session" not in str(outcome({}, {"session": {"timeout": "1h"}}).notes)


def test_intervals_that_herdctl_fires_at_the_start_are_named():
    """A note says that the first due time of an interval differs; that of a cron expression does not."""
    schedules = {"i": {"type": "interval", "interval": "5m"}, "c": {"type": "cron", "cron": "@daily"}}
    named = outcome({}, {"schedules": schedules}).named
    assert (named.get("schedules.i.interval"), named.get("schedules.c.cron")) == ("changed", None)


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({"tools": ["WebFetch"]}, {"`egress.allow`"}),
        ({"allowed_tools": ["WebFetch(domain:x.example)"]}, {"`egress.allow`"}),
        ({"allowed_tools": ["Read", "WebSearch"]}, {"provider_tools: [web_search]"}),
        ({"tools": ["WebSearch", "WebFetch"]}, {"`egress.allow`", "provider_tools: [web_search]"}),
        ({"tools": ["WebFetch"], "denied_tools": ["WebFetch"]}, set()),
        ({"tools": ["Read"]}, set()),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_tools_that_need_the_network_are_named(values: dict[str, Any], advice: set[str]):
    """A note for an agent that may fetch or search says which key permits that here."""
    notes = " ".join(reason for _, _, reason in outcome({}, values).notes)
    assert {each for each in ("`egress.allow`", "provider_tools: [web_search]") if each in notes} == advice


@pytest.mark.parametrize(
    ("said", "mode"),
    [
        (None, "accept_edits"),
        ("default", "deny"),
        ("acceptEdits", "accept_edits"),
        ("bypassPermissions", "bypass"),
        ("plan", "plan"),
        ("delegate", "deny"),
        ("dontAsk", "deny"),
    ],
)
def test_permission_modes(read: Read, said: str | None, mode: str):
    """Each permission mode becomes one that permits no more; without one, herdctl's own default is converted."""
    text = "name: a\n" + (f"permission_mode: {said}\n" if said else "")
    assert read("agents: [{path: a.yaml}]", a=text).agents["a"].settings.client.permission_mode == mode


@pytest.mark.parametrize(
    ("said", "runtime"), [(None, "claude-sdk"), ("sdk", "claude-sdk"), ("cli", "claude-cli")]
)
def test_runtimes(read: Read, said: str | None, runtime: str):
    """Each of herdctl's runtimes becomes the runtime of the same program."""
    text = "name: a\n" + (f"runtime: {said}\n" if said else "")
    assert read("agents: [{path: a.yaml}]", a=text).agents["a"].settings.run.runtime == runtime


@pytest.mark.parametrize(
    ("values", "tools"),
    [
        ({"tools": ["Read", "Bash"]}, {"allow": ["Read", "Bash"]}),
        ({"allowed_tools": ["Read"]}, {"allow": ["Read"]}),
        (
            {"tools": ["Read"], "allowed_tools": ["Read", "Bash(ls)", "mcp__x__y"]},
            {"allow": ["Read", "mcp__x__y"]},
        ),
        ({"denied_tools": ["Bash"]}, {"deny": ["Bash"]}),
        ({"allowed_tools": ["Read"], "permission_mode": "bypassPermissions"}, None),
    ],
    ids=["there", "permitted", "both", "denied", "all-permitted"],
)
def test_tools(values: dict[str, Any], tools: dict[str, Any] | None):
    """An agent never has a tool that it did not have under herdctl."""
    assert outcome({}, values).agents["a"].get("tools") == tools


@pytest.mark.parametrize(
    ("docker", "sandbox"),
    [
        ({"cpu_quota": 150_000}, {"cpus": 1.5}),
        ({"cpu_quota": 50_000, "cpu_period": 200_000}, {"cpus": 0.25}),
        ({"cpu_quota": -1}, None),
        ({"pids_limit": 4}, None),
        ({"enabled": True, "image": "node"}, None),
        ({"enabled": True, "image": "node:latest"}, None),
        ({"enabled": False, "image": "node:22"}, None),
        (
            {"enabled": True, "image": "host:5000/node:22"},
            {"backend": "docker", "image": "host:5000/node:22"},
        ),
        ({"enabled": True, "image": "n@sha256:0"}, {"backend": "docker", "image": "n@sha256:0"}),
        ({"network": "none"}, None),
        ({"network": "host", "user": "0:0", "host_config": {"Privileged": True}}, None),
        (
            {"volumes": ["/a:/b", "named:/c", "./rel:/d"]},
            {"mounts": [{"source": "/a", "target": "/b", "read_only": False}]},
        ),
    ],
    ids=str,
)
def test_docker_options(docker: dict[str, Any], sandbox: dict[str, Any] | None):
    """Limits and mounts are converted; keys that would weaken the sandbox or remove a limit are not."""
    assert _agent("docker", docker).get("sandbox") == sandbox


@pytest.mark.parametrize(
    ("point", "events", "points"),
    [
        ("after_run", None, ["after_run"]),
        ("after_run", ["completed"], ["on_success"]),
        ("after_run", ["failed", "cancelled"], ["on_failure", "on_cancel"]),
        ("after_run", ["completed", "failed", "timeout", "cancelled"], ["after_run"]),
        ("on_error", None, ["on_failure"]),
        ("on_error", ["completed"], None),
    ],
)
def test_hooks_are_done_at_the_same_ends(point: str, events: list[str] | None, points: list[str] | None):
    """A converted hook runs at the same ends of a job as before."""
    hook = {"type": "shell", "command": "true"} | ({"on_events": events} if events else {})
    hooks = _agent(f"hooks.{point}.0", hook).get("hooks")
    assert (list(hooks) if hooks else None) == points


def test_shell_hooks_stay_in_the_fence(read: Read):
    """A command that herdctl would run on the host runs in the agent's sandbox, with herdctl's time limit."""
    text = "name: a\nhooks: {after_run: [{type: shell, command: make}]}\n"
    (hook,) = read("agents: [{path: a.yaml}]", a=text).agents["a"].settings.hooks["after_run"]
    assert isinstance(hook, CommandHook)
    assert (hook.where, hook.timeout) == ("sandbox", 30.0)


def test_several_jobs_at_once_work_on_copies(read: Read):
    """Parallel jobs of one agent work on copies of the workspace."""
    agent = (
        read("agents: [{path: a.yaml}]", a="name: a\ninstances: {max_concurrent: 3}\n").agents["a"].settings
    )
    assert (agent.concurrency, agent.sandbox.mode) == (3, "clone")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Reviewer_1", "reviewer_1"),
        ("foo-", "foo"),
        ("a" * 60, "a" * 40),
        ("\u00dcber Uns", "ber-uns"),
        ("---", ""),
        ("taken", "taken-2"),
    ],
)
def test_names(text: str, name: str):
    """A herdctl name becomes the nearest name that is valid here and not taken."""
    assert valid_name(text, ["taken"]) == name
