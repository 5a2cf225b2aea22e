"""Where the clients keep their sessions."""

import os
from pathlib import Path

import pytest

from ringfence.errors import UsageError
from ringfence.runtime.transcript.discovery import FoundSession, find_session, list_sessions


@pytest.mark.parametrize(
    ("workspace", "name"),
    [
        ("/srv/my.project_x/a b", "-srv-my-project-x-a-b"),
        ("/srv/w d_é.x", "-srv-w-d---x"),
        ("/\U0001d4b3", "---"),
        ("/" + "x" * 199, "-" + "x" * 199),
        ("/" + "x" * 250, "-" + "x" * 199 + "-v734pd"),
    ],
    ids=["signs", "accent", "beyond-16-bits", "longest", "longer"],
)
def test_directories_are_named_as_claude_does(workspace: str, name: str) -> None:
    """Names that claude 2.1.329 gave."""
    found = FoundSession("claude", "s", Path(f"/projects/{name}/s.jsonl"), 0.0, 0)
    assert found.may_be_in(workspace)
    assert not found.may_be_in(f"{workspace[:3]}other")


@pytest.fixture
def environ(claude: Path, codex: Path) -> dict[str, str]:
    """Both clients' directories."""
    return {"CLAUDE_CONFIG_DIR": str(claude.parents[2]), "CODEX_HOME": str(codex.parents[4])}


def test_sessions_of_both_clients_are_found(environ: dict[str, str], claude: Path, codex: Path) -> None:
    """Each once, the newest first; sub-agents are part of theirs."""
    os.utime(claude, (1000, 1000))
    assert [one.path for one in list_sessions(environ)] == [codex, claude]


def test_the_usual_directories_are_in_the_home(claude: Path, codex: Path, tmp_path: Path) -> None:
    """Without variables they are ~/.claude and ~/.codex."""
    claude.parents[2].rename(tmp_path / ".claude")
    codex.parents[4].rename(tmp_path / ".codex")
    assert {one.client for one in list_sessions({"HOME": str(tmp_path)})} == {"claude", "codex"}


def test_what_is_no_session_is_not_listed(environ: dict[str, str], claude: Path) -> None:
    """Links, FIFOs and files of other names are passed over, and a home that is not there is empty."""
    (claude.parent / "link.jsonl").symlink_to(claude)
    os.mkfifo(claude.parent / "fifo.jsonl")
    (claude.parent / "agent-1.jsonl").touch()
    (claude.parents[1] / "other").symlink_to(claude.parent)
    assert len(list_sessions(environ)) == 2
    assert list_sessions({"HOME": "/nowhere"}) == []


def test_a_session_is_found_by_its_id(environ: dict[str, str], claude: Path, codex: Path) -> None:
    """Whole, by its beginning, as the newest, or by path."""
    os.utime(claude, (1000, 1000))
    assert find_session("00000001-0000-4000-8000-000000000001", environ) == claude
    assert find_session("0000002a", environ) == codex
    assert find_session("last", environ) == codex
    assert find_session(str(claude), {}) == claude


@pytest.mark.parametrize(
    ("reference", "reason"), [("0000", "fits 2 sessions"), ("beef", "no file and no session")]
)
def test_an_unclear_id_is_refused(reference: str, reason: str, environ: dict[str, str]) -> None:
    """None or several: the error says so and what to do."""
    with pytest.raises(UsageError, match=reason):
        find_session(reference, environ)
