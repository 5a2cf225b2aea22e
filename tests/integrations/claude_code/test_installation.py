"""What is added to the files of a project is removed again, and nothing else is touched."""

import fcntl
import json
import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.config.paths import state_dir
from ringfence.errors import ConfigurationError, InfrastructureFault
from ringfence.integrations.claude_code import install, remove

COMMAND = ("ringfence", "mcp")
SETTINGS = ".claude/settings.json"
LOCAL = ".claude/settings.local.json"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory of the caller's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def tree(project: Path) -> dict[str, bytes | None]:
    """Every path of a project, with the content of files."""
    return {
        str(path.relative_to(project)): path.read_bytes() if path.is_file() else None
        for path in project.rglob("*")
    }


def write(project: Path, name: str, document: Any, **form: Any) -> None:
    """Write a file as JSON, with its directory."""
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(json.dumps(document, **{"indent": 2, **form}) + "\n")


def test_an_empty_project_is_empty_again(project: Path):
    """Files and the directory are gone with what they were made for, and a second removal finds nothing."""
    install(project, COMMAND)
    assert set(tree(project)) == {".mcp.json", ".claude", SETTINGS, LOCAL}
    remove(project)
    assert tree(project) == {}
    assert remove(project).removed == ()


def test_nothing_changes_the_second_time(project: Path):
    """Neither by the same command nor after the removal of what was not there."""
    install(project, COMMAND)
    before = tree(project)
    assert install(project, COMMAND).written == ()
    assert tree(project) == before


def test_the_settings_leave_the_servers_tools_only(project: Path):
    """Whatever begins with a capital letter is denied, as any tool of claude's own is named; the server is allowed."""
    install(project, COMMAND)
    document = json.loads((project / SETTINGS).read_text())
    assert (
        json.loads((project / LOCAL).read_text()) == document
    )  # claude ignores a file with an invalid value
    assert document["permissions"]["deny"] == [f"{chr(letter)}*" for letter in range(ord("A"), ord("Z") + 1)]
    assert document["permissions"]["allow"] == ["mcp__ringfence"]
    assert document["allowedMcpServers"] == [{"serverName": "ringfence"}]
    server = json.loads((project / ".mcp.json").read_text())["mcpServers"]["ringfence"]
    assert server == {"type": "stdio", "command": "ringfence", "args": ["mcp"], "alwaysLoad": True}


_TEXT = st.text(max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=12,
)
_RULES = st.lists(st.sampled_from(["Bash", "A*", "Z*", "Read(./secrets/**)"]), unique=True)
_OWN = st.fixed_dictionaries(
    {},
    optional={
        "permissions": st.fixed_dictionaries(
            {}, optional={"deny": _RULES, "allow": st.just(["mcp__ringfence"]) | _RULES, "ask": _RULES}
        ),
        "enabledMcpjsonServers": st.lists(st.sampled_from(["ringfence", "other"]), unique=True),
        "allowedMcpServers": st.lists(st.sampled_from([{"serverName": "other"}]), max_size=1),
        "hooks": st.fixed_dictionaries({}, optional={"PreToolUse": st.just([]), "Stop": _JSON}),
        "env": st.dictionaries(
            st.sampled_from(["MCP_CONNECT_TIMEOUT_MS", "OTHER"]), st.sampled_from(["30000", "1"])
        ),
    },
)


@given(
    others=st.dictionaries(_TEXT, _JSON, max_size=4),
    own=_OWN,
    servers=st.dictionaries(st.sampled_from(["other", "third"]), _JSON),
    indent=st.sampled_from([None, 2, 4, "\t"]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_every_project_is_as_before(
    project: Path, others: dict[str, Any], own: dict[str, Any], servers: dict[str, Any], indent: Any
):
    """Values, their order and the indentation are kept, entries that the project had already included."""
    write(project, SETTINGS, {**others, **own}, indent=indent, ensure_ascii=False)
    write(project, ".mcp.json", {"mcpServers": servers, **others}, indent=indent, ensure_ascii=False)
    before = tree(project)
    install(project, COMMAND)
    install(project, COMMAND)
    changed = json.loads((project / SETTINGS).read_text())
    assert list(changed)[: len({**others, **own})] == list({**others, **own})
    remove(project)
    after = tree(project)
    assert remove(project).written == ()
    assert after == tree(project) == before


def test_what_was_changed_since_is_kept(project: Path):
    """A server that the user gave options is his; further rules, keys and servers are kept without a word."""
    install(project, COMMAND)
    servers = json.loads((project / ".mcp.json").read_text())
    servers["mcpServers"]["ringfence"]["args"] += ["--allow", "packages"]
    write(project, ".mcp.json", servers)
    document = json.loads((project / SETTINGS).read_text())
    document["permissions"]["deny"].insert(3, "WebFetch(domain:example.com)")
    document["model"] = "opus"
    write(project, SETTINGS, document)
    (project / ".claude" / "CLAUDE.md").write_text("Be brief.\n")
    change = remove(project)
    assert change.kept == ("mcpServers.ringfence in .mcp.json",)
    assert json.loads((project / ".mcp.json").read_text()) == servers
    assert json.loads((project / SETTINGS).read_text()) == {
        "permissions": {"deny": ["WebFetch(domain:example.com)"]},
        "model": "opus",
    }
    assert (project / ".claude" / "CLAUDE.md").exists()


def test_another_machine_can_remove_it(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Files that came with a commit are cleaned there, wherever the other one had ringfence."""
    install(project, ("/opt/venv/bin/ringfence", "mcp"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    install(project, COMMAND)
    remove(project)
    assert tree(project) == {}


def test_another_server_of_the_name_is_refused(project: Path):
    """And replaced only by name of the option."""
    write(project, ".mcp.json", {"mcpServers": {"ringfence": {"command": "evil"}}})
    before = tree(project)
    with pytest.raises(ConfigurationError, match=r"mcpServers.ringfence is another server.*--force"):
        install(project, COMMAND)
    assert tree(project) == before
    install(project, COMMAND, replace=True)
    assert (
        json.loads((project / ".mcp.json").read_text())["mcpServers"]["ringfence"]["command"] == "ringfence"
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"permissions": {"deny": ["*"]}}, r"permissions.deny has '\*'"),
        (
            {"permissions": {"deny": ["mcp__ringfence__file_read"]}},
            "permissions.deny has 'mcp__ringfence__file_read'",
        ),
        ({"disabledMcpjsonServers": ["ringfence"]}, "disabledMcpjsonServers has 'ringfence'"),
        ({"deniedMcpServers": [{"serverName": "ringfence"}]}, "deniedMcpServers has 'ringfence'"),
        ({"permissions": []}, "permissions is not an object"),
        ({"permissions": {"allow": {}}}, "permissions.allow is not a list"),
        ({"hooks": {"PreToolUse": "x"}}, "hooks.PreToolUse is not a list"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_settings_that_would_win_are_refused(project: Path, document: Any, message: str):
    """A file that would take the tools away, or has something else in a place, is left as it is."""
    write(project, SETTINGS, document)
    before = tree(project)
    with pytest.raises(ConfigurationError, match=message):
        install(project, COMMAND)
    assert tree(project) == before


def _deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"settings.json:1:1: it is not JSON"),
        ('{"a": 1,}', r"settings.json:1:9: it is not JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('{"x": {"deny": 1, "deny": 2}}', "the key 'deny' occurs twice"),
        ("[]", "it holds no JSON object"),
        ('{"a": NaN}', "NaN is no number of JSON"),
        ('{"a": 1e999}', "a number is too large"),
        ('{"a": ' + "9" * 5000 + "}", "it is not JSON"),
        (_deep(100_000), "it is nested too deeply"),
        ('{"a": "' + "x" * 1024 * 1024 + '"}', "it is larger than 1048576 bytes"),
        (b'{"a": "\xff"}', "it is not JSON"),
        ("\ufeff{}", "it is not JSON"),
    ],
    ids=["empty", "comma", "twice", "twice below", "list", "nan", "infinite", "long", "deep",
         "large", "bytes", "mark"],
)  # fmt: skip
def test_a_file_that_is_not_understood_is_left(project: Path, content: str | bytes, message: str):
    """Nothing is written beside it either."""
    (project / ".claude").mkdir()
    (project / SETTINGS).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = tree(project)
    with pytest.raises(ConfigurationError, match=message):
        install(project, COMMAND)
    assert tree(project) == before


def test_text_is_kept_as_it_is(project: Path):
    """Letters stay letters, and an escape for half a character is kept as one."""
    write(project, SETTINGS, {"language": "Français"}, ensure_ascii=False)
    install(project, COMMAND)
    assert "Français" in (project / SETTINGS).read_text()
    (project / SETTINGS).write_text('{"language": "\\ud800"}\n')
    install(project, COMMAND)
    assert "\\ud800" in (project / SETTINGS).read_text()


def _link_folder(project: Path, outside: Path) -> None:
    (project / ".claude").symlink_to(outside)


def _link_settings(project: Path, outside: Path) -> None:
    (project / ".claude").mkdir()
    (project / SETTINGS).symlink_to(outside / "settings.json")


def _link_servers(project: Path, outside: Path) -> None:
    (project / ".mcp.json").symlink_to(outside / "settings.json")


def _dangling(project: Path, outside: Path) -> None:
    (project / ".claude").symlink_to(outside / "nothing")


def _pipe(project: Path, outside: Path) -> None:
    os.mkfifo(project / ".mcp.json")


def _pipe_of_local_settings(project: Path, outside: Path) -> None:
    (project / ".claude").mkdir()
    os.mkfifo(project / ".claude" / "settings.local.json")


def _directory(project: Path, outside: Path) -> None:
    (project / ".mcp.json").mkdir()


def _file_for_folder(project: Path, outside: Path) -> None:
    (project / ".claude").write_text("")


HOSTILE = [
    _link_folder, _link_settings, _link_servers, _dangling, _pipe, _pipe_of_local_settings, _directory, _file_for_folder,
]  # fmt: skip


@pytest.mark.parametrize("lay", HOSTILE)
@pytest.mark.timeout(20)
def test_no_link_or_pipe_is_followed(project: Path, tmp_path: Path, lay: Callable[[Path, Path], None]):
    """What a hostile project lays in the way is refused by its name; nothing is written, there or outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "settings.json").write_text("{}\n")
    lay(project, outside)
    before = sorted(project.rglob("*"))
    with pytest.raises(ConfigurationError, match=r"/\.(claude|mcp)"):
        install(project, COMMAND)
    assert sorted(project.rglob("*")) == before
    assert tree(outside) == {"settings.json": b"{}\n"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("name", ["", ".claude", SETTINGS, LOCAL, ".mcp.json"])
def test_files_of_another_user_are_refused(project: Path, name: str):
    """A file that root replaced would be root's."""
    install(project, COMMAND)
    before = tree(project)
    os.chown(project / name, 12_345, -1)
    with pytest.raises(ConfigurationError, match="belongs to user 12345; run this command as that user"):
        install(project, ("x", "mcp"))
    with pytest.raises(ConfigurationError, match="belongs to user 12345"):
        remove(project)
    assert tree(project) == before


def test_one_at_a_time(project: Path):
    """While one process reads and writes the files, another is refused and changes nothing."""
    holder = os.open(project, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(InfrastructureFault, match="another process is configuring"):
            install(project, COMMAND)
        assert tree(project) == {}
    finally:
        os.close(holder)
    install(project, COMMAND)


def test_both_files_or_none(project: Path):
    """If the second file cannot be written, the first is as it was, and nothing is left beside them or recorded."""
    write(project, SETTINGS, {"model": "opus"})
    write(project, ".mcp.json", {"mcpServers": {"other": {"command": "x" * 100_000}}})
    before = tree(project)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(InfrastructureFault, match=r"could not write .*\.mcp\.json': File too large"):
            install(project, COMMAND)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert tree(project) == before
    assert [*(state_dir() / "claude-code").iterdir()] == []


def test_the_mode_of_a_file_is_kept(project: Path):
    """A private file of settings stays private."""
    write(project, SETTINGS, {"env": {"TOKEN": "zqzq7x"}})
    (project / SETTINGS).chmod(0o600)
    install(project, COMMAND)
    assert stat.S_IMODE((project / SETTINGS).stat().st_mode) == 0o600
    assert "zqzq7x" not in "".join(path.read_text() for path in (state_dir() / "claude-code").iterdir())


def test_other_settings_are_named(project: Path):
    """Hooks and variables of the project stay in effect, so they are shown."""
    write(project, SETTINGS, {"hooks": {"Stop": []}, "permissions": {"deny": ["Bash"]}})
    write(project, LOCAL, {"allowedMcpServers": [{"serverName": "other"}], "env": {"A": "1"}})
    change = install(project, COMMAND)
    assert change.other_settings == {
        project / SETTINGS: ("hooks",),
        project / LOCAL: ("allowedMcpServers", "env"),
    }
