"""Which loops' rows may be collected."""

from pathlib import Path

from ringfence.loop.databases import Shared, announce
from ringfence.loop.forgetting import lost_loops


def test_a_loop_on_a_disk_that_is_away_is_not_lost(tmp_path: Path):
    """Its directory was moved there and a link left in its place; one that is simply gone is lost."""
    folder = tmp_path / "loops"
    folder.mkdir()
    for name in ("moved", "gone"):
        announce(folder / name, Shared("postgresql://u@h/n", "postgresql://u@h/n", "/source"))
    (folder / "moved").symlink_to(tmp_path / "disk" / "moved")
    assert lost_loops(tmp_path) == ["gone"]
