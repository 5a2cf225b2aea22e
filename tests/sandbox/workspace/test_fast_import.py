"""How changes are put into the store."""

from pathlib import Path

import pytest

from ringfence.sandbox.workspace.snapshot import fast_import
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio


async def test_packs_are_bounded(workspace: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch):
    """Many checkpoints leave few packs, which git would open each time, and hold all contents all the same."""
    monkeypatch.setattr(fast_import, "_MAX_PACKS", 2)
    taken = []
    for number in range(4):
        for file in range(3):
            (workspace / f"f{file}").write_text(f"{number} {file}\n")
        taken.append((await store.take(f"r{number}/a")).id)
    assert len(list((store.directory / "objects" / "pack").glob("*.pack"))) == 2
    for number, checkpoint in enumerate(taken):
        batches = [batch async for batch in store.contents(await store.blobs(checkpoint))]
        held = {blob.path: data for batch in batches for blob, data in batch}
        assert {held[b"f%d" % file] for file in range(3)} == {
            b"%d %d\n" % (number, file) for file in range(3)
        }


async def test_a_first_checkpoint_in_parts_is_whole(
    workspace: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
):
    """Files that are handed to git part by part, the next read while it works on the last, are all there."""
    monkeypatch.setattr("ringfence.sandbox.workspace.snapshot.taking._BATCH_BYTES", 5000)
    for file in range(40):
        (workspace / f"g{file}").write_text(f"{file}\n" * 300)
    one = await store.take("r/a")
    monkeypatch.undo()
    other = await SnapshotStore(workspace, store.directory.parent.parent / "other").take("r/a")
    assert (one.tree, one.files) == (other.tree, other.files)
