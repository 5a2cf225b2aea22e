"""As whom a sandbox runs."""

import os
import pwd
from pathlib import Path

import pytest

from ringfence.errors import PolicyRefused
from ringfence.sandbox.spec import SandboxSpec, WorkspaceMode
from ringfence.sandbox.workspace.policy import (
    RESERVED_ID,
    Caller,
    Decision,
    check_reserved,
    decide,
    decide_for,
)
from ringfence.sandbox.workspace.sandbox import open_for_sandbox

USER, ROOT = Caller(1000, 1000), Caller(0, 0)


@pytest.mark.parametrize(
    ("caller", "owner", "asked", "expected"),
    [
        pytest.param(USER, (1000, 1000), None, Decision(1000, 1000, "bind"), id="own"),
        pytest.param(USER, (1000, 1000), "clone", Decision(1000, 1000, "clone"), id="own-clone"),
        pytest.param(USER, (1000, 1000), "read_only", Decision(1000, 1000, "read_only"), id="own-read-only"),
        pytest.param(USER, (2000, 2000), None, Decision(1000, 1000, "clone"), id="others"),
        pytest.param(USER, (0, 0), None, Decision(1000, 1000, "clone"), id="roots"),
        pytest.param(
            Caller(1000, 0), (1000, 0), None, Decision(1000, RESERVED_ID, "bind"), id="gid-0-of-a-user"
        ),
        pytest.param(ROOT, (1000, 100), None, Decision(1000, 100, "bind"), id="root-on-a-users"),
        pytest.param(ROOT, (1000, 0), None, Decision(1000, RESERVED_ID, "bind"), id="root-never-lends-gid-0"),
        pytest.param(ROOT, (0, 0), None, Decision(RESERVED_ID, RESERVED_ID, "clone"), id="root-on-roots"),
        pytest.param(
            ROOT,
            (0, 0),
            "bind",
            Decision(RESERVED_ID, RESERVED_ID, "bind", is_idmapped=True),
            id="root-binds-roots",
        ),
        pytest.param(
            ROOT, (0, 0), "read_only", Decision(RESERVED_ID, RESERVED_ID, "read_only"), id="root-reads"
        ),
    ],
)
def test_table(caller: Caller, owner: tuple[int, int], asked: WorkspaceMode | None, expected: Decision):
    """Each row of the table gives this identity and mode, and never uid or gid 0."""
    assert decide(caller, *owner, asked=asked) == expected


@pytest.mark.parametrize(("asked", "mode"), [(None, "clone"), ("clone", "clone"), ("read_only", "read_only")])
def test_an_engine_that_sees_no_files(asked: WorkspaceMode | None, mode: WorkspaceMode):
    """Where nothing of this machine can be mounted, the workspace is a clone unless it is only read."""
    assert decide(USER, 1000, 1000, asked=asked, unseen="it is elsewhere").mode == mode


def test_bind_is_refused_where_no_files_are_seen():
    """Asking for `bind` by name does not show an empty directory."""
    with pytest.raises(PolicyRefused, match="it is elsewhere; use mode 'clone'") as caught:
        decide(USER, 1000, 1000, asked="bind", unseen="it is elsewhere")
    assert caught.value.rule == "workspace-on-engine"


@pytest.mark.parametrize(("caller", "owner"), [(USER, 2000), (USER, 0)])
def test_bind_is_refused_where_no_user_owns_the_workspace(caller: Caller, owner: int):
    """Asking for `bind` by name does not lend a user somebody else's or root's identity."""
    with pytest.raises(PolicyRefused, match="mode 'clone'") as caught:
        decide(caller, owner, owner, asked="bind")
    assert caught.value.rule == "bind-owner"


@pytest.mark.parametrize("taken", [0, *(entry.pw_uid for entry in pwd.getpwall()[:3])])
def test_reserved_id_must_be_nobodys(taken: int):
    """An id that the user database names is refused."""
    with pytest.raises(PolicyRefused, match="reserved id"):
        check_reserved(taken)


def test_reserved_id_is_free_here():
    """The default reserved id is in no distribution's range."""
    check_reserved(RESERVED_ID)
    assert 65_536 <= RESERVED_ID < 100_000


def test_decision_reads_the_owner_from_disk(workspace: Path):
    """A user binds what it owns; root's own files are cloned."""
    decision = decide_for(workspace, None)
    assert decision.mode == ("clone" if os.geteuid() == 0 else "bind")
    assert decision.uid != 0


async def test_place_shows_git_and_trusted_files_read_only(repository: Path, state: Path):
    """A repository that is not used has no private git directory, so `.git` itself is guarded."""
    (repository / ".envrc").write_text("")
    (repository / ".git" / "commondir").write_text("/elsewhere\n")
    if os.geteuid() == 0:
        for path in (repository, repository / ".git"):
            os.chown(path, 12_345, 12_345)
    async with open_for_sandbox(
        SandboxSpec(backend="bubblewrap", workspace=repository), "one", state
    ) as opened:
        overlays = {overlay.target.name: overlay.read_only for overlay in opened.view.placement.overlays}
    assert overlays == {".git": True, ".envrc": True}


async def test_place_without_a_workspace_is_never_root(state: Path):
    """A sandbox with no workspace has an identity all the same."""
    async with open_for_sandbox(SandboxSpec(backend="bubblewrap"), "one", state) as opened:
        placement = opened.view.placement
    assert placement.workspace is None
    assert placement.uid == (os.geteuid() or RESERVED_ID)
