"""Archives that come out of a sandbox are hostile; what goes in holds no link."""

import io
import os
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples, slow_but

from ringfence.errors import RingfenceError, SandboxFileError, UsageError
from ringfence.sandbox.supervisor import archive as archives
from ringfence.sandbox.supervisor.archive import Bounds, Copied, pack
from ringfence.sandbox.workspace.tree import Tree

WIDE = Bounds(10_000_000, 1000)


def unpack(more: Callable[[], bytes], folder: Path, bounds: Bounds, *, source: str) -> Copied:
    """Unpack into a directory."""
    with Tree(folder) as tree:
        return archives.unpack(more, tree, bounds, source=source)


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


def field(text: bytes) -> bytes:
    """One field of a PAX header: its length, itself included, and `key=value`."""
    length = len(text) + 2
    while len(b"%d %s\n" % (length, text)) != length:
        length += 1
    return b"%d %s\n" % (length, text)


def extension(kind: bytes, *texts: bytes) -> bytes:
    """A header that extends the next one by fields of PAX."""
    fields = b"".join(map(field, texts))
    info = special("x", kind)
    info.size = len(fields)
    return info.tobuf(tarfile.GNU_FORMAT) + fields + bytes(-len(fields) % 512)


def sparse_map() -> bytes:
    """A file whose map of holes has a thousand continued blocks, in GNU's old format."""
    block = bytearray(special("s", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    block[386:482], block[482] = b"00000000100\0" * 8, 1
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + sum(block[156:]) + 8 * 32)
    more = bytearray(b"00000000100\0" * 42 + bytes(8))
    more[504] = 1
    return bytes(block) + bytes(more) * 3000


def sparse_list() -> bytes:
    """The same in PAX's format, where the map is told before the contents."""
    text = extension(tarfile.XHDTYPE, b"GNU.sparse.major=1", b"GNU.sparse.minor=0")
    info = special("s", tarfile.REGTYPE)
    info.size = 512
    return text + info.tobuf(tarfile.GNU_FORMAT) + b"900000\n" + b"1\n" * 900_000


@pytest.mark.parametrize("data", [sparse_map(), sparse_list()], ids=["map", "list"])
def test_headers_without_end_are_refused(tmp_path: Path, data: bytes):
    """A map of holes can go on for ever, and is kept in memory."""
    with pytest.raises(tarfile.ReadError, match="headers without end"):
        unpack(pieces(data), tmp_path, WIDE, source="s")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    slow_but([tarfile.XHDTYPE], [tarfile.XHDTYPE, tarfile.XGLTYPE]),
    ids=["of one file", "of all files"],
)
def test_headers_are_not_kept(tmp_path: Path, kind: bytes):
    """What extends one file is forgotten at the next; what extends all of them, too."""
    files = (
        extension(kind, b"key%d=" % number + b"x" * 50_000) + archive((f"f{number}", b""))[:512]
        for number in range(400)
    )
    unfinished = iter([*files, bytes(1024)])
    tracemalloc.start()
    try:
        held = tracemalloc.get_traced_memory()[0]
        copied = unpack(lambda: next(unfinished, b""), tmp_path, WIDE, source="s")
        peak = tracemalloc.get_traced_memory()[1] - held
    finally:
        tracemalloc.stop()
    assert copied.files == 400
    assert peak < 8_000_000


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.REGTYPE], ids=["directory", "file"])
def test_a_negative_size_is_refused(tmp_path: Path, kind: bytes):
    """It would make room for more than the bounds."""
    data = extension(tarfile.XHDTYPE, b"size=-900000000") + special("d", kind).tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(tarfile.ReadError, match="-900000000"):
        unpack(pieces(data + archive(("a", b"a"))), tmp_path, WIDE, source="s")


def test_what_is_in_the_way_is_not_written_through(tmp_path: Path):
    """A link that somebody inside puts into the directory meanwhile, where that can be seen inside."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "d").symlink_to(elsewhere)
    (scratch / "f").symlink_to(elsewhere / "f")
    for name in ("d/x", "f"):
        with pytest.raises(tarfile.ReadError, match="in the way"):
            unpack(pieces(archive((name, b"x"))), scratch, WIDE, source="s")
    assert list(elsewhere.iterdir()) == []


def test_set_id_bits_do_not_come_out(tmp_path: Path):
    """Nor does write permission for others."""
    info = tarfile.TarInfo("program")
    info.mode = 0o6777
    unpack(pieces(archive(info)), tmp_path, WIDE, source="s")
    assert (tmp_path / "program").stat().st_mode & 0o7022 == 0


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
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
