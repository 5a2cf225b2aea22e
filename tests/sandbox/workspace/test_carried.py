"""A workspace as a stream: packed for an engine elsewhere, and what came back of it, which is hostile."""

import io
import os
import stat
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import InfrastructureFault, LimitReached
from ringfence.sandbox.workspace.packing import Bounds, Packed, pack
from ringfence.sandbox.workspace.swap import put_in_place
from ringfence.sandbox.workspace.unpacking import Unpacked, unpack

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


def packed(source: Path, bounds: Bounds = _BOUNDS) -> tuple[io.BytesIO, Packed]:
    """A directory as a stream."""
    file = io.BytesIO()
    told = pack(source, file, uid=1500, gid=1600, bounds=bounds)
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
) -> Unpacked:
    """What came back."""
    return unpack(file, fresh, original=before, protected=protected, bounds=bounds)


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
    pack(before, file, uid=1, gid=1, bounds=_BOUNDS, only=b".github")
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
    with pytest.raises(InfrastructureFault, match="could not be written"):
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


def test_in_place_of(tmp_path: Path) -> None:
    """A directory takes another's place, of which nothing is left."""
    for name in ("old", "fresh"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    put_in_place(tmp_path / "fresh", tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["fresh"]
