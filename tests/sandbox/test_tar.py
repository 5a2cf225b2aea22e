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
    """A member that is no file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def each(parts: Iterable[bytes]) -> Read:
    """A stream that comes in these pieces."""
    left = iter(parts)
    return lambda _count: next(left, b"")


def pieces(data: bytes, size: int = 1000) -> Read:
    """The data, a piece at each call."""
    return each(data[start : start + size] for start in range(0, len(data), size))


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a/../../../etc/out", "a//b"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str):
    """And nothing is written, neither there nor here."""
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
def test_what_is_no_file_is_left_out_and_named(tmp_path: Path, kind: bytes, target: str, why: str):
    """The rest is copied."""
    data = archive(("file", b"x"), special("odd", kind, target), ("more", b"y"))
    copied = unpack(pieces(data), tmp_path, WIDE)
    assert (copied.left_out, copied.files) == ([f"'odd' ({why})"], 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "more"]


def test_a_file_cannot_be_put_through_a_link_that_came_before_it(tmp_path: Path):
    """The link is not there, so its name is a directory of our own."""
    data = archive(special("d", tarfile.SYMTYPE, "/tmp"), ("d/ringfence-through", b"x"))
    unpack(pieces(data), tmp_path, WIDE)
    assert (tmp_path / "d" / "ringfence-through").read_bytes() == b"x"
    assert not Path("/tmp/ringfence-through").exists()


@pytest.mark.parametrize("bounds", [Bounds(10, 100), Bounds(1000, 1)], ids=["bytes", "entries"])
def test_more_than_the_bounds_is_refused(tmp_path: Path, bounds: Bounds):
    """Told by what the headers announce, before it is written."""
    with pytest.raises(SandboxFileError, match="--limit"):
        unpack(pieces(archive(("a", b"x" * 6), ("b", b"x" * 6))), tmp_path, bounds)


@pytest.mark.parametrize("size", [1 << 40, -(1 << 40)], ids=["large", "negative"])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_would_fill_memory_is_refused(tmp_path: Path, kind: bytes, size: int):
    """Extended headers are read whole, so no more is read than headers may be long."""
    info = special("x", kind)
    info.size = size
    rest = iter([b"\1" * 10_000] * 100)
    with pytest.raises(tarfile.ReadError, match="header"):
        unpack(each(itertools.chain([info.tobuf(tarfile.GNU_FORMAT)], rest)), tmp_path, WIDE)
    assert len(list(rest)) > 80


@pytest.mark.parametrize("body", [b"9 a=aaaa\n", b""], ids=["full", "empty"])
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME], ids=["pax", "long name"])
def test_a_chain_of_headers_is_refused(tmp_path: Path, kind: bytes, body: bytes):
    """Headers that extend each other without end are no archive; nothing else fails by them."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, len(body)
    chain = (header.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512)) * 3000
    with pytest.raises(tarfile.ReadError, match="headers without end"):
        unpack(pieces(chain + archive(("a", b"a"))), tmp_path, Bounds(1 << 20, 100))


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
        unpack(pieces(data), tmp_path, WIDE)


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
        copied = unpack(each(unfinished), tmp_path, WIDE)
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
        unpack(pieces(data + archive(("a", b"a"))), tmp_path, WIDE)


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
            unpack(pieces(archive((name, b"x"))), scratch, WIDE)
    assert list(elsewhere.iterdir()) == []


def test_set_id_bits_do_not_come_out(tmp_path: Path):
    """Nor does write permission for others."""
    info = tarfile.TarInfo("program")
    info.mode = 0o6777
    unpack(pieces(archive(info)), tmp_path, WIDE)
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
        copied = unpack(pieces(bytes(data)), tmp_path_factory.mktemp("noise"), WIDE)
    except (*DAMAGED, RingfenceError):
        return
    assert isinstance(copied, Transfer)


def test_what_lies_too_deep_is_left_out_and_named(tmp_path: Path):
    """Each level would hold a descriptor; names are as long as paths may be."""
    copied = unpack(pieces(archive(("d/" * 20_000 + "x", b"x"))), tmp_path, WIDE)
    (left_out,) = copied.left_out
    assert left_out.endswith("(deeper than 256 directories)")
    assert len(left_out) < 5000
    assert list(tmp_path.iterdir()) == []


def test_a_tree_goes_there_and_back(tmp_path: Path):
    """Contents, modes and empty directories; links are left out and named."""
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
def test_what_cannot_be_copied_in_is_refused(tmp_path: Path, make: Callable[[Path], object]):
    """A link, a pipe, nothing at all: named, and none of it is opened through a link or waited for."""
    make(tmp_path / "odd")
    with pytest.raises(UsageError, match="odd"):
        pack_copy(tmp_path / "odd", io.BytesIO().write, name="odd")


# --- workspaces

_BOUNDS = Bounds(10_000_000, 10_000)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """What was carried in."""
    place = tmp_path / "before"
    (place / ".github/workflows").mkdir(parents=True)
    (place / ".github/workflows/ci.yml").write_text("on: push\n")
    (place / "app.py").write_text("one\n")
    return place


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """Where what comes back goes."""
    place = tmp_path / "fresh"
    place.mkdir()
    return place


def packed(source: Path, bounds: Bounds = _BOUNDS) -> tuple[io.BytesIO, Transfer]:
    """A directory as a stream."""
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
    """What came back."""
    return unpack_workspace(file.read, fresh, original=before, protected=protected, bounds=bounds)


def test_there_and_back(before: Path, fresh: Path) -> None:
    """Bytes, modes, links, times and names of any bytes are the same after both ways."""
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


def test_all_belongs_to_the_sandbox(before: Path) -> None:
    """In the stream everything is the sandbox's user's, whoever's it is here."""
    with tarfile.open(fileobj=packed(before)[0]) as tar:
        assert {(member.uid, member.gid) for member in tar} == {(1500, 1600)}


def test_what_no_stream_holds_is_named(before: Path) -> None:
    """A fifo stays behind, and is named."""
    os.mkfifo(before / "pipe")
    _file, told = packed(before)
    assert told.left_out == ["'pipe' (a socket, fifo or device)"]


def test_one_of_all(before: Path, fresh: Path) -> None:
    """A part of the top can be carried alone."""
    file = io.BytesIO()
    pack_workspace(before, file.write, uid=1, gid=1, bounds=_BOUNDS, only=b".github")
    file.seek(0)
    taken(file, fresh, before)
    assert [path.name for path in fresh.iterdir()] == [".github"]
    assert (fresh / ".github/workflows/ci.yml").read_text() == "on: push\n"


@pytest.mark.parametrize("bounds", [Bounds(5, 100), Bounds(1000, 3)], ids=["bytes", "entries"])
def test_too_much_to_carry(before: Path, bounds: Bounds) -> None:
    """A workspace out of bounds is not carried, and the text says what to do."""
    with pytest.raises(InfrastructureFault, match="--mode clone"):
        packed(before, bounds)


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "workspace/../x", "workspace//x", "other/x", "workspace/a/./b", "workspace/.."]
)
def test_names_that_lead_elsewhere(before: Path, fresh: Path, name: str) -> None:
    """A name that is not below the workspace ends it."""
    with pytest.raises(InfrastructureFault, match="leads elsewhere"):
        taken(stream((name, {}, b"x")), fresh, before)


def test_no_link_is_followed(before: Path, fresh: Path, tmp_path: Path) -> None:
    """What is written below a link that came earlier goes nowhere."""
    (tmp_path / "away").mkdir()
    link = ("workspace/l", {"type": tarfile.SYMTYPE, "linkname": str(tmp_path / "away")}, b"")
    with pytest.raises(InfrastructureFault, match="in the way"):
        taken(stream(link, ("workspace/l/x", {}, b"x")), fresh, before)
    assert list((tmp_path / "away").iterdir()) == []


def test_a_second_one_of_a_name(before: Path, fresh: Path, tmp_path: Path) -> None:
    """A file in the place of a link that came earlier is refused: it would be written through it."""
    link = ("workspace/l", {"type": tarfile.SYMTYPE, "linkname": str(tmp_path / "made")}, b"")
    with pytest.raises(InfrastructureFault):
        taken(stream(link, ("workspace/l", {}, b"x")), fresh, before)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_devices_are_left_out(before: Path, fresh: Path, kind: bytes) -> None:
    """Fifos and devices are not made, and named."""
    told = taken(stream(("workspace/d", {"type": kind}, b"")), fresh, before)
    assert list(fresh.iterdir()) == []
    assert told.notes == ("not carried back from the engine: 'd' (a socket, fifo or device)",)


def test_set_id_bits_go(before: Path, fresh: Path) -> None:
    """A file comes back with rights for its owner and without powers."""
    taken(stream(("workspace/s", {"mode": 0o6755}, b""), ("workspace/n", {"mode": 0}, b"")), fresh, before)
    assert stat.S_IMODE((fresh / "s").stat().st_mode) == 0o755
    assert stat.S_IMODE((fresh / "n").stat().st_mode) == 0o400


def test_hard_links_stay_links(before: Path, fresh: Path) -> None:
    """Two names of one file are two names of one file again."""
    other = ("workspace/b", {"type": tarfile.LNKTYPE, "linkname": "workspace/a"}, b"")
    taken(stream(("workspace/a", {}, b"x"), other), fresh, before)
    assert (fresh / "a").stat().st_ino == (fresh / "b").stat().st_ino


def test_no_other_name_for_a_protected_file(before: Path, fresh: Path) -> None:
    """By it a later run, which sees that name as any other, would write the file."""
    other = ("workspace/b", {"type": tarfile.LNKTYPE, "linkname": "workspace/.github/workflows/ci.yml"}, b"")
    told = taken(stream(other), fresh, before, protected=[b".github/workflows"])
    assert not (fresh / "b").exists()
    assert (fresh / ".github/workflows/ci.yml").stat().st_nlink == 1
    assert "another name of '.github/workflows/ci.yml'" in told.notes[-1]


def test_hard_link_out(before: Path, fresh: Path) -> None:
    """A hard link to something outside of the workspace ends it."""
    other = ("workspace/b", {"type": tarfile.LNKTYPE, "linkname": "/etc/passwd"}, b"")
    with pytest.raises(InfrastructureFault, match="leads elsewhere"):
        taken(stream(other), fresh, before)


@pytest.mark.parametrize(
    ("bounds", "limit"), [(Bounds(5, 100), "disk"), (Bounds(100, 2), "files")], ids=["bytes", "entries"]
)
def test_too_much_came_back(before: Path, fresh: Path, bounds: Bounds, limit: str) -> None:
    """More than may come back is a limit that was reached."""
    members: list[tuple[str, dict[str, Any], bytes]] = [
        (f"workspace/{number}", {}, b"xxx") for number in range(3)
    ]
    with pytest.raises(LimitReached) as caught:
        taken(stream(*members), fresh, before, bounds=bounds)
    assert caught.value.limit == limit


@pytest.mark.parametrize("data", [b"", b"no archive at all" * 100, b"\0" * 2048])
def test_no_archive(before: Path, fresh: Path, data: bytes) -> None:
    """Bytes that are no archive, or an empty one, are no workspace: nothing of the old one is lost for them."""
    with pytest.raises(InfrastructureFault, match="is no workspace"):
        taken(io.BytesIO(data), fresh, before)


def test_cut_off(before: Path, fresh: Path) -> None:
    """A stream that ends in the middle is no workspace."""
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
    """A protected file that came back changed is as it was, and named."""
    told = taken(stream(*members), fresh, before, [b".github/workflows"])
    assert [path.name for path in (fresh / ".github/workflows").iterdir()] == ["ci.yml"]
    assert (fresh / ".github/workflows/ci.yml").read_text() == "on: push\n"
    assert stat.S_IMODE((fresh / ".github/workflows/ci.yml").stat().st_mode) & 0o111 == 0
    assert ".github" in told.notes[0]


def test_protected_files_that_are_the_same(before: Path, fresh: Path) -> None:
    """A protected file that came back as it was is no news, and what lies beside it may change."""
    told = taken(
        stream(*_UNCHANGED, (_CI, {}, b"on: push\n"), ("workspace/.github/x", {}, b"x")),
        fresh,
        before,
        [b".github/workflows", b"absent"],
    )
    assert told.notes == ()
    assert (fresh / ".github/x").read_text() == "x"


@given(data=st.binary(max_size=3000), cut=st.integers(0, 4000), at=st.integers(0, 4000))
def test_damage_is_one_of_two_errors(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int, at: int
) -> None:
    """Whatever bytes come back: a workspace, or one of our own errors; never another."""
    place = tmp_path_factory.mktemp("damage")
    (place / "fresh").mkdir()
    whole = bytearray(
        stream(("workspace/a", {}, b"x" * 600), ("workspace/" + "b" * 200, {}, b"y")).getvalue()
    )
    whole[at : at + cut] = data
    with suppress(InfrastructureFault, LimitReached):
        taken(io.BytesIO(bytes(whole)), place / "fresh", place)
    assert {path.name for path in place.iterdir()} == {"fresh"}
