"""Where a database file may lie, and files that are replaced at once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ringfence.filesystem import is_remote, kind_of, replace_file

_MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:40 / /home rw,relatime shared:7 - nfs4 server:/home rw
31 30 0:41 / /home/me/local rw,relatime - tmpfs tmpfs rw
32 22 0:42 / /mnt/with\\040blank rw,relatime - fuse.sshfs me@host: rw
33 22 0:43 / /mnt rw,relatime - xfs /dev/vdb rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/x", "ext4"),
        ("/home/me", "nfs4"),
        ("/home/me/local/deep", "tmpfs"),
        ("/homes", "ext4"),
        ("/mnt/with blank/x", "fuse.sshfs"),
        ("/mnt/other", "xfs"),
    ],
)
def test_kind(path: str, kind: str):
    """The mount nearest to a path says on what it lies."""
    assert kind_of(Path(path), _MOUNTS) == kind


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse", "fuse.sshfs", "9p", "ceph", "lustre"]
)
def test_remote(kind: str):
    """Locks on file systems of other machines are not relied on."""
    assert is_remote(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "fuseblk", ""])
def test_local(kind: str):
    """File systems of this machine are fine, and so is one that nobody knows."""
    assert not is_remote(kind)


def test_a_file_is_replaced(tmp_path: Path):
    """A file is replaced with its mode, a link in its place is not followed, and nothing else is left."""
    other, file = tmp_path / "other", tmp_path / "file"
    other.write_text("theirs")
    file.symlink_to(other)
    replace_file(file, b"ours")
    assert file.read_bytes() == b"ours"
    assert file.stat().st_mode & 0o777 == 0o600
    assert other.read_text() == "theirs"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "other"]


def test_a_file_that_cannot_be_replaced_is_as_it_was(tmp_path: Path):
    """What cannot be replaced stays, and nothing is left beside it."""
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        replace_file(folder, b"ours")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_writers_at_the_same_time(tmp_path: Path):
    """Of several writers one wins, with all that it wrote."""
    file = tmp_path / "file"
    contents = [bytes([65 + number]) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda content: replace_file(file, content), contents))
    assert file.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [file]
