"""Where a database file may lie."""

from pathlib import Path

import pytest

from ringfence.filesystem import is_remote, kind_of

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
