"""As whom a sandbox runs."""

import os
import pwd
from pathlib import Path

import pytest

from ringfence.errors import PolicyRefused
from ringfence.sandbox.base import Traits
from ringfence.sandbox.spec import SandboxSpec, WorkspaceMode
from ringfence.sandbox.workspace.open import RESERVED_ID, check_reserved, choose_user_and_mode, open_workspace
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.standalone import open_for_sandbox

USER, ROOT, RESERVED = Actor(1000, 1000), Actor(0, 0), Actor(RESERVED_ID, RESERVED_ID)


@pytest.mark.parametrize(
    ("caller", "owner", "asked", "user", "mode"),
    [
        pytest.param(USER, USER, None, USER, "bind", id="own"),
        pytest.param(USER, USER, "clone", USER, "clone", id="own-clone"),
        pytest.param(USER, USER, "read_only", USER, "read_only", id="own-read-only"),
        pytest.param(USER, Actor(2000, 2000), None, USER, "clone", id="others"),
        pytest.param(USER, ROOT, None, USER, "clone", id="roots"),
        pytest.param(
            Actor(1000, 0), Actor(1000, 0), None, Actor(1000, RESERVED_ID), "bind", id="gid-0-of-a-user"
        ),
        pytest.param(ROOT, Actor(1000, 100), None, Actor(1000, 100), "bind", id="root-on-a-users"),
        pytest.param(
            ROOT, Actor(1000, 0), None, Actor(1000, RESERVED_ID), "bind", id="root-never-lends-gid-0"
        ),
        pytest.param(ROOT, ROOT, None, RESERVED, "clone", id="root-on-roots"),
        pytest.param(ROOT, ROOT, "bind", RESERVED, "bind", id="root-binds-roots"),
        pytest.param(ROOT, ROOT, "read_only", RESERVED, "read_only", id="root-reads"),
    ],
)
def test_table(caller: Actor, owner: Actor, asked: WorkspaceMode | None, user: Actor, mode: WorkspaceMode):
    """Each row of the table gives this user and mode, and never uid or gid 0."""
    assert choose_user_and_mode(caller, owner, asked=asked) == (user, mode)


@pytest.mark.parametrize(("asked", "mode"), [(None, "clone"), ("clone", "clone"), ("read_only", "read_only")])
def test_an_engine_that_sees_no_files(asked: WorkspaceMode | None, mode: WorkspaceMode):
    """Where nothing of this machine can be mounted, the workspace is a clone unless it is only read."""
    assert choose_user_and_mode(USER, USER, asked=asked, unseen="it is elsewhere") == (USER, mode)


@pytest.mark.parametrize("caller", [USER, ROOT])
def test_bind_is_refused_where_no_files_are_seen(caller: Actor):
    """Asking for `bind` by name does not show an empty directory."""
    with pytest.raises(PolicyRefused, match="it is elsewhere; use mode 'clone'") as caught:
        choose_user_and_mode(caller, caller, asked="bind", unseen="it is elsewhere")
    assert caught.value.rule == "workspace-on-engine"


@pytest.mark.parametrize("owner", [Actor(2000, 2000), ROOT])
def test_bind_is_refused_where_no_user_owns_the_workspace(owner: Actor):
    """Asking for `bind` by name does not lend a user somebody else's or root's identity."""
    with pytest.raises(PolicyRefused, match="mode 'clone'") as caught:
        choose_user_and_mode(USER, owner, asked="bind")
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


@pytest.mark.parametrize("asked", [None, "bind"])
async def test_the_owner_is_read_from_disk(asked: WorkspaceMode | None, workspace: Path, state: Path):
    """A user binds what it owns; root's own files are cloned, or bound by an idmapped mount."""
    async with open_workspace(workspace, asked, state=state, holder=None, traits=Traits()) as opened:
        is_root = os.geteuid() == 0
        assert opened.mode == (asked or ("clone" if is_root else "bind"))
        assert (opened.placement.uid != 0, opened.placement.is_idmapped) == (True, bool(is_root and asked))


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
        mounts = {mount.target.name: mount.read_only for mount in opened.placement.mounts}
    assert mounts == {".git": True, ".envrc": True}


async def test_place_without_a_workspace_is_never_root(state: Path):
    """A sandbox with no workspace has an identity all the same."""
    async with open_for_sandbox(SandboxSpec(backend="bubblewrap"), "one", state) as opened:
        placement = opened.placement
    assert placement.workspace is None
    assert placement.uid == (os.geteuid() or RESERVED_ID)
