"""Archives that come out of a sandbox are hostile; what goes in holds no link."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.errors import RingfenceError, SandboxFileError, UsageError
from ringfence.sandbox.holder.archive import Bounds, Copied, pack, unpack

WIDE = Bounds(10_000_000, 1000)


def archive(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """A tar file with these members."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return target.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """A member that is no file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def pieces(data: bytes, size: int = 1000) -> Callable[[], bytes]:
    """The data, a piece at each call."""
    stream = io.BytesIO(data)
    return lambda: stream.read(size)


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a/../../../etc/out", "d/" * 300 + "x"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str):
    """And nothing is written, neither there nor here."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(tarfile.TarError, match="leads elsewhere"):
        unpack(pieces(archive((name, b"x"))), scratch, WIDE, source="s")
    assert list(tmp_path.rglob("*")) == [scratch]


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "file"),
        (tarfile.FIFOTYPE, ""),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
    ],
    ids=["symlink", "hard-link", "fifo", "character-device", "block-device"],
)
def test_what_is_no_file_is_left_out_and_named(tmp_path: Path, kind: bytes, target: str):
    """The rest is copied."""
    data = archive(("file", b"x"), special("odd", kind, target), ("more", b"y"))
    copied = unpack(pieces(data), tmp_path, WIDE, source="s")
    assert (copied.left_out, copied.files) == (["odd"], 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "more"]


def test_a_file_cannot_be_put_through_a_link_that_came_before_it(tmp_path: Path):
    """The link is not there, so its name is a directory of our own."""
    data = archive(special("d", tarfile.SYMTYPE, "/tmp"), ("d/ringfence-through", b"x"))
    unpack(pieces(data), tmp_path, WIDE, source="s")
    assert (tmp_path / "d" / "ringfence-through").read_bytes() == b"x"
    assert not Path("/tmp/ringfence-through").exists()


@pytest.mark.parametrize("bounds", [Bounds(10, 100), Bounds(1000, 1)], ids=["bytes", "entries"])
def test_more_than_the_bounds_is_refused(tmp_path: Path, bounds: Bounds):
    """Told by what the headers announce, before it is written."""
    with pytest.raises(SandboxFileError, match="--limit"):
        unpack(pieces(archive(("a", b"x" * 6), ("b", b"x" * 6))), tmp_path, bounds, source="s")


def test_a_header_that_would_fill_memory_is_refused(tmp_path: Path):
    """Extended headers are read whole, so their size is looked at first."""
    info = special("x", tarfile.XHDTYPE)
    info.size = 1 << 40
    with pytest.raises(tarfile.ReadError, match="header"):
        unpack(pieces(info.tobuf(tarfile.GNU_FORMAT)), tmp_path, WIDE, source="s")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME], ids=["pax", "long name"])
def test_a_chain_of_headers_is_refused(tmp_path: Path, kind: bytes):
    """Headers that extend each other without end are no archive; nothing else fails by them."""
    header, body = tarfile.TarInfo("x"), b"9 a=aaaa\n"
    header.type, header.size = kind, len(body)
    chain = (header.tobuf(tarfile.USTAR_FORMAT) + body.ljust(512, b"\0")) * 3000
    with pytest.raises(tarfile.ReadError, match="chain of headers"):
        unpack(pieces(chain + archive(("a", b"a"))), tmp_path, Bounds(1 << 20, 100), source="s")


def test_set_id_bits_do_not_come_out(tmp_path: Path):
    """Nor does write permission for others."""
    info = tarfile.TarInfo("program")
    info.mode = 0o6777
    unpack(pieces(archive(info)), tmp_path, WIDE, source="s")
    assert (tmp_path / "program").stat().st_mode & 0o7022 == 0


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=12))
def test_no_bytes_make_it_fail_otherwise(
    tmp_path_factory: pytest.TempPathFactory, noise: list[tuple[int, int]]
):
    """A damaged archive is refused as such, or what is sound in it comes out; never anything else."""
    data = bytearray(archive(("d/a", b"x" * 600), special("l", tarfile.SYMTYPE, "a")))
    for place, value in noise:
        data[place] = value
    try:
        copied = unpack(pieces(bytes(data)), tmp_path_factory.mktemp("noise"), WIDE, source="s")
    except (tarfile.TarError, EOFError, ValueError, RingfenceError):
        return
    assert isinstance(copied, Copied)


def test_a_tree_goes_there_and_back(tmp_path: Path):
    """Contents, modes and empty directories; links are left out and named."""
    source = tmp_path / "tree"
    (source / "empty").mkdir(parents=True)
    (source / "file").write_bytes(b"x" * 100_000)
    (source / "run").write_text("#!")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("/etc/passwd")
    data = bytearray()
    copied = pack(source, "tree", data.extend)
    assert (copied.files, copied.left_out) == (2, ["tree/link"])
    back = tmp_path / "back"
    back.mkdir()
    unpack(pieces(bytes(data)), back, WIDE, source="s")
    assert (back / "tree" / "file").read_bytes() == b"x" * 100_000
    assert (back / "tree" / "empty").is_dir()
    assert os.access(back / "tree" / "run", os.X_OK)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda _path: None])
def test_what_cannot_be_copied_in_is_refused(tmp_path: Path, make: Callable[[Path], object]):
    """A link, a pipe, nothing at all: named, and none of it is opened through a link or waited for."""
    make(tmp_path / "odd")
    with pytest.raises(UsageError, match="odd"):
        pack(tmp_path / "odd", "odd", lambda _data: None)
