"""A directory takes the place of another."""

from pathlib import Path

from ringfence.removal import put_in_place


def test_in_place_of(tmp_path: Path) -> None:
    """A directory takes another's place, of which nothing is left."""
    for name in ("old", "fresh"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    put_in_place(tmp_path / "fresh", tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["fresh"]
