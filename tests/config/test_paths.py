"""Where ringfence keeps its things."""

import os
from pathlib import Path

import pytest

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, PolicyRefused


def test_a_state_directory_that_everybody_writes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write there can change records and keys; one that is not there yet is made our own."""
    place = tmp_path / "state"
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(place))
    assert state_dir() == place
    place.mkdir(mode=0o700)
    assert state_dir() == place
    place.chmod(0o777)
    with pytest.raises(PolicyRefused, match="by every user"):
        state_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_state_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root, too, keeps nothing in a user's directory."""
    os.chown(tmp_path, 1500, 1500)
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path))
    with pytest.raises(PolicyRefused, match="user 1500"):
        state_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_state_directory_behind_a_link_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user into whose home root is led has nothing removed or written elsewhere."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("elsewhere")
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "link" / "ringfence"))
    assert state_dir() == tmp_path / "link" / "ringfence"
    os.chown(tmp_path / "link", 1500, 1500, follow_symlinks=False)
    with pytest.raises(PolicyRefused, match="link of another user"):
        state_dir()


@pytest.mark.parametrize(("place", "advice"), [("state", "RINGFENCE_STATE_DIR"), ("other", "check the path")])
def test_a_directory_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, advice: str
) -> None:
    """With the reason and the next step, which for the state directory is its variable."""
    (tmp_path / "state").touch()
    (tmp_path / "other").touch()
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    wanted = tmp_path / place / "inner"
    with pytest.raises(InfrastructureFault, match=rf"directory {str(wanted)!r}: Not a directory; .*{advice}"):
        make_private_dir(wanted)
