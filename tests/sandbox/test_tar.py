"""Tar streams: copies into and out of a sandbox, and workspaces on their way to an engine and back.

Whatever comes out is hostile.
"""

import io
import itertools
import os
import stat
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples, slow_but

from ringfence.errors import InfrastructureFault, LimitReached, RingfenceError, SandboxFileError, UsageError
from ringfence.sandbox.tar.pack import pack_copy, pack_workspace
from ringfence.sandbox.tar.stream import DAMAGED, Bounds, Read, Transfer
from ringfence.sandbox.tar.unpack import unpack_copy, unpack_workspace
from ringfence.sandbox.workspace.tree import Tree

WIDE = Bounds(10_000_000, 1000)


def unpack(data: Read, folder: Path, bounds: Bounds) -> Transfer:
    """Unpack a copy into a directory."""
    with Tree(folder) as tree:
        return unpack_copy(data, tree, bounds, path="s")


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
    """A member that is no regular file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def each(parts: Iterable[bytes]) -> Read:
    """A function that reads a stream in these pieces."""
    left = iter(parts)
    return lambda _count: next(left, b"")


def pieces(data: bytes, size: int = 1000) -> Read:
    """A function that reads the data in pieces of one size."""
    return each(data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a/../../../etc/out", "a//b"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str):
    """A copy with a name that leads out of the target is refused, and nothing is written anywhere."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(tarfile.TarError, match="leads elsewhere"):
        unpack(pieces(archive((name, b"x"))), scratch, WIDE)
    assert list(tmp_path.rglob("*")) == [scratch]


@pytest.mark.parametrize(
    ("kind", "target", "why"),
    [
        (tarfile.SYMTYPE, "/etc/passwd", "a link"),
        (tarfile.LNKTYPE, "file", "a link"),
        (tarfile.FIFOTYPE, "", "a socket, fifo or device"),
        (tarfile.CHRTYPE, "", "a socket, fifo or device"),
        (tarfile.BLKTYPE, "", "a socket, fifo or device"),
    ],
    ids=["symlink", "hard-link", "fifo", "character-device", "block-device"],
)
def test_special_files_are_left_out_and_named(tmp_path: Path, kind: bytes, target: str, why: str):
    """Links, fifos and devices are left out of a copy and named; the rest is copied."""
    data = archive(("file", b"x"), special("odd", kind, target), ("more", b"y"))
    copied = unpack(pieces(data), tmp_path, WIDE)
    assert (copied.left_out, copied.files) == ([f"'odd' ({why})"], 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "more"]


def test_a_file_is_not_written_through_an_earlier_link(tmp_path: Path):
    """As the link was left out, a directory of its name is made, and the file is written in that."""
    data = archive(special("d", tarfile.SYMTYPE, "/tmp"), ("d/ringfence-through", b"x"))
    unpack(pieces(data), tmp_path, WIDE)
    assert (tmp_path / "d" / "ringfence-through").read_bytes() == b"x"
    assert not Path("/tmp/ringfence-through").exists()


@pytest.mark.parametrize("bounds", [Bounds(10, 100), Bounds(1000, 1)], ids=["bytes", "entries"])
def test_more_than_the_bounds_is_refused(tmp_path: Path, bounds: Bounds):
    """A copy beyond the bounds is refused by the sizes in its headers, before it is written."""
    with pytest.raises(SandboxFileError, match="--limit"):
        unpack(pieces(archive(("a", b"x" * 6), ("b", b"x" * 6))), tmp_path, bounds)


@pytest.mark.parametrize("size", [1 << 40, -(1 << 40)], ids=["large", "negative"])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_would_fill_memory_is_refused(tmp_path: Path, kind: bytes, size: int):
    """An extended header is held in memory, so at most the allowed length of headers is read."""
    info = special("x", kind)
    info.size = size
    rest = iter([b"\1" * 10_000] * 100)
    with pytest.raises(tarfile.ReadError, match="header"):
        unpack(each(itertools.chain([info.tobuf(tarfile.GNU_FORMAT)], rest)), tmp_path, WIDE)
    assert len(list(rest)) > 80


@pytest.mark.parametrize("body", [b"9 a=aaaa\n", b""], ids=["full", "empty"])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME], ids=["pax", "long name"])
def test_a_chain_of_headers_is_refused(tmp_path: Path, kind: bytes, body: bytes):
    """Headers that extend each other without end raise that error, not a RecursionError."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, len(body)
    chain = (header.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512)) * 3000
    with pytest.raises(tarfile.ReadError, match="headers without end"):
        unpack(pieces(chain + archive(("a", b"a"))), tmp_path, Bounds(1 << 20, 100))


def field(text: bytes) -> bytes:
    """One field of a PAX header: its length, which counts itself, and `key=value`."""
    length = len(text) + 2
    while len(b"%d %s\n" % (length, text)) != length:
        length += 1
    return b"%d %s\n" % (length, text)


def extension(kind: bytes, *texts: bytes) -> bytes:
    """A PAX header that extends the next one by these fields."""
    fields = b"".join(map(field, texts))
    info = special("x", kind)
    info.size = len(fields)
    return info.tobuf(tarfile.GNU_FORMAT) + fields + bytes(-len(fields) % 512)


def sparse_map() -> bytes:
    """A file whose map of holes has 3000 continuation blocks, in GNU's old format."""
    block = bytearray(special("s", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    block[386:482], block[482] = b"00000000100\0" * 8, 1
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + sum(block[156:]) + 8 * 32)
    more = bytearray(b"00000000100\0" * 42 + bytes(8))
    more[504] = 1
    return bytes(block) + bytes(more) * 3000


def sparse_list() -> bytes:
    """A file with a long map of holes in the PAX format, where the map precedes the contents."""
    text = extension(tarfile.XHDTYPE, b"GNU.sparse.major=1", b"GNU.sparse.minor=0")
    info = special("s", tarfile.REGTYPE)
    info.size = 512
    return text + info.tobuf(tarfile.GNU_FORMAT) + b"900000\n" + b"1\n" * 900_000


@pytest.mark.parametrize("data", [sparse_map(), sparse_list()], ids=["map", "list"])
def test_an_endless_map_of_holes_is_refused(tmp_path: Path, data: bytes):
    """A map of holes, which is kept in memory, cannot go on without end."""
    with pytest.raises(tarfile.ReadError, match="headers without end"):
        unpack(pieces(data), tmp_path, WIDE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    slow_but([tarfile.XHDTYPE], [tarfile.XHDTYPE, tarfile.XGLTYPE]),
    ids=["of one file", "of all files"],
)
def test_headers_are_not_kept(tmp_path: Path, kind: bytes):
    """Extended headers of earlier files, and global ones, are forgotten and take no memory."""
    files = (
        extension(kind, b"key%d=" % number + b"x" * 50_000) + archive((f"f{number}", b""))[:512]
        for number in range(400)
    )
    unfinished = iter([*files, bytes(1024)])
    tracemalloc.start()
    try:
        held = tracemalloc.get_traced_memory()[0]
        copied = unpack(each(unfinished), tmp_path, WIDE)
        peak = tracemalloc.get_traced_memory()[1] - held
    finally:
        tracemalloc.stop()
    assert copied.files == 400
    assert peak < 8_000_000


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.REGTYPE], ids=["directory", "file"])
def test_a_negative_size_is_refused(tmp_path: Path, kind: bytes):
    """A negative size, which would raise the remaining bounds, is refused."""
    data = extension(tarfile.XHDTYPE, b"size=-900000000") + special("d", kind).tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(tarfile.ReadError, match="-900000000"):
        unpack(pieces(data + archive(("a", b"a"))), tmp_path, WIDE)


def test_a_link_in_the_target_is_not_followed(tmp_path: Path):
    """A link that appears in the target directory during the copy is not followed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "d").symlink_to(elsewhere)
    (scratch / "f").symlink_to(elsewhere / "f")
    for name in ("d/x", "f"):
        with pytest.raises(tarfile.ReadError, match="in the way"):
            unpack(pieces(archive((name, b"x"))), scratch, WIDE)
    assert list(elsewhere.iterdir()) == []


def test_a_copy_has_no_set_id_bits(tmp_path: Path):
    """A copy has no set-id bits, and no write permission for others."""
    info = tarfile.TarInfo("program")
    info.mode = 0o6777
    unpack(pieces(archive(info)), tmp_path, WIDE)
    assert (tmp_path / "program").stat().st_mode & 0o7022 == 0


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(noise=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=12))
def test_a_damaged_copy_raises_only_known_errors(
    tmp_path_factory: pytest.TempPathFactory, noise: list[tuple[int, int]]
):
    """A damaged archive is refused, or its sound part is copied; no other error is raised."""
    data = bytearray(archive(("d/a", b"x" * 600), special("l", tarfile.SYMTYPE, "a")))
    for place, value in noise:
        data[place] = value
    try:
        copied = unpack(pieces(bytes(data)), tmp_path_factory.mktemp("noise"), WIDE)
    except (*DAMAGED, RingfenceError):
        return
    assert isinstance(copied, Transfer)


def test_a_file_that_lies_too_deep_is_left_out_and_named(tmp_path: Path):
    """Each level would hold a descriptor, so a file below too many directories is left out."""
    copied = unpack(pieces(archive(("d/" * 20_000 + "x", b"x"))), tmp_path, WIDE)
    (left_out,) = copied.left_out
    assert left_out.endswith("(deeper than 256 directories)")
    assert len(left_out) < 5000
    assert list(tmp_path.iterdir()) == []


def test_a_copied_tree_is_the_same(tmp_path: Path):
    """Contents, modes and empty directories are the same; links are left out and named."""
    source = tmp_path / "tree"
    (source / "empty").mkdir(parents=True)
    (source / "file").write_bytes(b"x" * 100_000)
    (source / "run").write_text("#!")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("/etc/passwd")
    data = io.BytesIO()
    copied = pack_copy(source, data.write, name="tree")
    assert (copied.files, copied.left_out) == (2, ["'tree/link' (a link)"])
    back = tmp_path / "back"
    back.mkdir()
    unpack(pieces(data.getvalue()), back, WIDE)
    assert (back / "tree" / "file").read_bytes() == b"x" * 100_000
    assert (back / "tree" / "empty").is_dir()
    assert os.access(back / "tree" / "run", os.X_OK)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda _path: None])
def test_only_files_and_directories_can_be_copied_in(tmp_path: Path, make: Callable[[Path], object]):
    """A link, a fifo or an absent path is refused by its name; no link is followed and no fifo is opened."""
    make(tmp_path / "odd")
    with pytest.raises(UsageError, match="odd"):
        pack_copy(tmp_path / "odd", io.BytesIO().write, name="odd")


# --- workspaces

_BOUNDS = Bounds(10_000_000, 10_000)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The workspace that was uploaded."""
    place = tmp_path / "before"
    (place / ".github/workflows").mkdir(parents=True)
    (place / ".github/workflows/ci.yml").write_text("on: push\n")
    (place / "app.py").write_text("one\n")
    return place


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """The directory for the download."""
    place = tmp_path / "fresh"
    place.mkdir()
    return place


def packed(source: Path, bounds: Bounds = _BOUNDS) -> tuple[io.BytesIO, Transfer]:
    """A directory as a stream, and what was packed."""
    file = io.BytesIO()
    told = pack_workspace(source, file.write, uid=1500, gid=1600, bounds=bounds)
    file.seek(0)
    return file, told


def stream(*members: tuple[str, dict[str, Any], bytes]) -> io.BytesIO:
    """A stream that holds a workspace with these members."""
    file = io.BytesIO()
    with tarfile.open(mode="w|", fileobj=file, format=tarfile.PAX_FORMAT) as tar:
        for name, fields, data in (("workspace", {"type": tarfile.DIRTYPE}, b""), *members):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in fields.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(data))
    file.seek(0)
    return file


def taken(
    file: io.BytesIO, fresh: Path, before: Path, protected: Iterable[bytes] = (), bounds: Bounds = _BOUNDS
) -> Transfer:
    """Unpack a downloaded stream; return what it held."""
    return unpack_workspace(file.read, fresh, original=before, protected=protected, bounds=bounds)


def test_a_workspace_comes_back_the_same(before: Path, fresh: Path) -> None:
    """Bytes, modes, links, times and names, which can be any bytes, are the same after upload and download."""
    odd = os.fsencode(before) + b"/\xff\xc3\xa9 \n"
    os.close(os.open(odd, os.O_CREAT, 0o640))
    (before / "ü" / ("long" * 40)).mkdir(parents=True)
    (before / "ü/bin").write_bytes(bytes(range(256)))
    (before / "ü/bin").chmod(0o750)
    (before / "out").symlink_to("/etc/passwd")
    os.utime(before / "app.py", (1_000_000_000, 1_000_000_000))
    assert taken(packed(before)[0], fresh, before).notes == ()
    assert {path.name for path in fresh.iterdir()} == {path.name for path in before.iterdir()}
    assert (fresh / "ü/bin").read_bytes() == bytes(range(256))
    assert stat.S_IMODE((fresh / "ü/bin").stat().st_mode) == 0o750
    assert (fresh / "ü" / ("long" * 40)).is_dir()
    assert str((fresh / "out").readlink()) == "/etc/passwd"
    assert (fresh / "app.py").stat().st_mtime == 1_000_000_000


def test_the_owner_is_the_sandbox_user(before: Path) -> None:
    """In the stream all files belong to the user of the sandbox, whoever owns them on the host."""
    with tarfile.open(fileobj=packed(before)[0]) as tar:
        assert {(member.uid, member.gid) for member in tar} == {(1500, 1600)}


def test_a_fifo_is_not_uploaded(before: Path) -> None:
    """A fifo is left out of an upload, and named."""
    os.mkfifo(before / "pipe")
    _file, told = packed(before)
    assert told.left_out == ["'pipe' (a socket, fifo or device)"]


def test_one_entry_is_uploaded_alone(before: Path, fresh: Path) -> None:
    """A single entry at the top of the workspace can be uploaded alone."""
    file = io.BytesIO()
    pack_workspace(before, file.write, uid=1, gid=1, bounds=_BOUNDS, only=b".github")
    file.seek(0)
    taken(file, fresh, before)
    assert [path.name for path in fresh.iterdir()] == [".github"]
    assert (fresh / ".github/workflows/ci.yml").read_text() == "on: push\n"


@pytest.mark.parametrize("bounds", [Bounds(5, 100), Bounds(1000, 3)], ids=["bytes", "entries"])
def test_too_large_an_upload_is_refused(before: Path, bounds: Bounds) -> None:
    """A workspace beyond the bounds is not uploaded, and the error says what to do."""
    with pytest.raises(InfrastructureFault, match="--mode clone"):
        packed(before, bounds)


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "workspace/../x", "workspace//x", "other/x", "workspace/a/./b", "workspace/.."]
)
def test_names_outside_the_workspace_are_refused(before: Path, fresh: Path, name: str) -> None:
    """A download with a name that is not below the workspace is refused."""
    with pytest.raises(InfrastructureFault, match="leads elsewhere"):
        taken(stream((name, {}, b"x")), fresh, before)


def test_a_link_of_the_stream_is_not_followed(before: Path, fresh: Path, tmp_path: Path) -> None:
    """A download with a file below an earlier link is refused, and nothing is written to the target of the link."""
    (tmp_path / "away").mkdir()
    link = ("workspace/l", {"type": tarfile.SYMTYPE, "linkname": str(tmp_path / "away")}, b"")
    with pytest.raises(InfrastructureFault, match="in the way"):
        taken(stream(link, ("workspace/l/x", {}, b"x")), fresh, before)
    assert list((tmp_path / "away").iterdir()) == []


def test_a_file_in_place_of_an_earlier_link_is_refused(before: Path, fresh: Path, tmp_path: Path) -> None:
    """A download with a file of the name of an earlier link is refused, as it would be written through the link."""
    link = ("workspace/l", {"type": tarfile.SYMTYPE, "linkname": str(tmp_path / "made")}, b"")
    with pytest.raises(InfrastructureFault):
        taken(stream(link, ("workspace/l", {}, b"x")), fresh, before)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_devices_are_left_out(before: Path, fresh: Path, kind: bytes) -> None:
    """Fifos and devices in a download are left out and named."""
    told = taken(stream(("workspace/d", {"type": kind}, b"")), fresh, before)
    assert list(fresh.iterdir()) == []
    assert told.notes == ("not downloaded from the engine: 'd' (a socket, fifo or device)",)


def test_a_download_has_no_set_id_bits(before: Path, fresh: Path) -> None:
    """A downloaded file has permissions for its owner, and no set-id bits."""
    taken(stream(("workspace/s", {"mode": 0o6755}, b""), ("workspace/n", {"mode": 0}, b"")), fresh, before)
    assert stat.S_IMODE((fresh / "s").stat().st_mode) == 0o755
    assert stat.S_IMODE((fresh / "n").stat().st_mode) == 0o400


def test_hard_links_are_kept(before: Path, fresh: Path) -> None:
    """Two names of one file are two names of one file after the download."""
    other = ("workspace/b", {"type": tarfile.LNKTYPE, "linkname": "workspace/a"}, b"")
    taken(stream(("workspace/a", {}, b"x"), other), fresh, before)
    assert (fresh / "a").stat().st_ino == (fresh / "b").stat().st_ino


def test_a_hard_link_to_a_protected_file_is_left_out(before: Path, fresh: Path) -> None:
    """Such a second name is not protected, and a later run could write the file by it."""
    other = ("workspace/b", {"type": tarfile.LNKTYPE, "linkname": "workspace/.github/workflows/ci.yml"}, b"")
    told = taken(stream(other), fresh, before, protected=[b".github/workflows"])
    assert not (fresh / "b").exists()
    assert (fresh / ".github/workflows/ci.yml").stat().st_nlink == 1
    assert "another name of '.github/workflows/ci.yml'" in told.notes[-1]


def test_a_hard_link_out_of_the_workspace_is_refused(before: Path, fresh: Path) -> None:
    """A download with a hard link to a file outside of the workspace is refused."""
    other = ("workspace/b", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}, b"")
    with pytest.raises(InfrastructureFault, match="leads elsewhere"):
        taken(stream(other), fresh, before)


@pytest.mark.parametrize(
    ("bounds", "limit"), [(Bounds(5, 100), "disk"), (Bounds(100, 2), "files")], ids=["bytes", "entries"]
)
def test_too_large_a_download_reaches_a_limit(before: Path, fresh: Path, bounds: Bounds, limit: str) -> None:
    """A download beyond the bounds raises which limit was reached."""
    members: list[tuple[str, dict[str, Any], bytes]] = [
        (f"workspace/{number}", {}, b"xxx") for number in range(3)
    ]
    with pytest.raises(LimitReached) as caught:
        taken(stream(*members), fresh, before, bounds=bounds)
    assert caught.value.limit == limit


@pytest.mark.parametrize("data", [b"", b"no archive at all" * 100, b"\0" * 2048])
def test_a_stream_without_a_workspace_is_refused(before: Path, fresh: Path, data: bytes) -> None:
    """Bytes that are no archive, or an empty one, are refused, and the old workspace is kept."""
    with pytest.raises(InfrastructureFault, match="is no workspace"):
        taken(io.BytesIO(data), fresh, before)


def test_an_incomplete_download_is_refused(before: Path, fresh: Path) -> None:
    """A stream that ends early is refused."""
    whole = stream(("workspace/a", {}, b"x" * 5000)).getvalue()
    with pytest.raises(InfrastructureFault):
        taken(io.BytesIO(whole[:3000]), fresh, before)


_CI = "workspace/.github/workflows/ci.yml"
_UNCHANGED: list[tuple[str, dict[str, Any], bytes]] = [
    ("workspace/.github", {"type": tarfile.DIRTYPE}, b""),
    ("workspace/.github/workflows", {"type": tarfile.DIRTYPE}, b""),
]


@pytest.mark.parametrize(
    "members",
    [
        [*_UNCHANGED, (_CI, {}, b"on: evil\n")],
        [*_UNCHANGED, (_CI, {"mode": 0o755}, b"on: push\n")],
        [*_UNCHANGED, (_CI, {"type": tarfile.SYMTYPE, "linkname": "/tmp/evil"}, b"")],
        [*_UNCHANGED, (_CI, {"type": tarfile.FIFOTYPE}, b"")],
        [*_UNCHANGED, (_CI, {}, b"on: push\n"), ("workspace/.github/workflows/more.yml", {}, b"on: evil\n")],
        [("workspace/.github", {"type": tarfile.SYMTYPE, "linkname": "/tmp/evil"}, b"")],
        [("workspace/.github", {}, b"a file")],
        [],
    ],
    ids=["bytes", "mode", "link", "fifo", "another", "parent is a link", "parent is a file", "gone"],
)
def test_protected_files_are_put_back(before: Path, fresh: Path, members: list[Any]) -> None:
    """A protected file that was changed inside is restored, and named."""
    told = taken(stream(*members), fresh, before, [b".github/workflows"])
    assert [path.name for path in (fresh / ".github/workflows").iterdir()] == ["ci.yml"]
    assert (fresh / ".github/workflows/ci.yml").read_text() == "on: push\n"
    assert stat.S_IMODE((fresh / ".github/workflows/ci.yml").stat().st_mode) & 0o111 == 0
    assert ".github" in told.notes[0]


def test_unchanged_protected_files_are_not_named(before: Path, fresh: Path) -> None:
    """An unchanged protected file causes no note, and files beside it may change."""
    told = taken(
        stream(*_UNCHANGED, (_CI, {}, b"on: push\n"), ("workspace/.github/x", {}, b"x")),
        fresh,
        before,
        [b".github/workflows", b"absent"],
    )
    assert told.notes == ()
    assert (fresh / ".github/x").read_text() == "x"


@given(data=st.binary(max_size=3000), cut=st.integers(0, 4000), at=st.integers(0, 4000))
def test_a_damaged_download_raises_only_known_errors(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int, at: int
) -> None:
    """Any bytes either are a workspace, or raise one of the two errors."""
    place = tmp_path_factory.mktemp("damage")
    (place / "fresh").mkdir()
    whole = bytearray(
        stream(("workspace/a", {}, b"x" * 600), ("workspace/" + "b" * 200, {}, b"y")).getvalue()
    )
    whole[at : at + cut] = data
    with suppress(InfrastructureFault, LimitReached):
        taken(io.BytesIO(bytes(whole)), place / "fresh", place)
    assert {path.name for path in place.iterdir()} == {"fresh"}
