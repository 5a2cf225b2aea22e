"""States of a tree: any, what is there, and how to get from one to another."""

import os
import stat
import time
from pathlib import Path

from hypothesis import strategies as st

State = dict[str, tuple[str, str]]
"""Kind and contents, or target, by path."""
_PATHS = st.sampled_from(["a", "b", "d/a", "d/e/a", "d/e", "d", "caf\xe9", "new\nline", " "])
_ENTRIES = st.one_of(
    st.tuples(st.just("file"), st.text("abc\n\r", max_size=20)),
    st.tuples(st.just("program"), st.text("abc", max_size=5)),
    st.tuples(st.just("link"), st.sampled_from(["a", "../../outside", "nowhere"])),
)
TREES = st.dictionaries(_PATHS, _ENTRIES, max_size=6)


def become(root: Path, wanted: State) -> None:
    """Make the files below `root` those of a state; a path that another one needs as a directory is left out."""
    for name in os.listdir(root):  # noqa: PTH208
        if name != ".git":
            _remove(root / name)
    for path, (kind, text) in wanted.items():
        place = root / path
        if (
            any((root / part).is_symlink() or (root / part).is_file() for part in _above(path))
            or place.is_dir()
        ):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            place.symlink_to(text)
        else:
            place.write_text(text, newline="")
            place.chmod(0o755 if kind == "program" else 0o644)


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    else:
        path.unlink()


def contents(root: Path) -> dict[str, tuple[str, bytes, bool]]:
    """Every file and link below `root` outside of `.git`: kind, contents, whether it can be run."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git" and not Path(folder, name).is_symlink()]
        for name in [*names, *(one for one in os.listdir(folder) if Path(folder, one).is_symlink())]:  # noqa: PTH208
            path = Path(folder, name)
            mode = path.lstat().st_mode
            text = os.fsencode(path.readlink()) if stat.S_ISLNK(mode) else path.read_bytes()
            runs = not stat.S_ISLNK(mode) and bool(mode & 0o100)
            found[str(path.relative_to(root))] = (stat.filemode(mode)[0], text, runs)
    return found


def wait_for_tick(beside: Path) -> None:
    """Until a change to a file gets another time than any change before: that clock moves in steps."""
    probe = beside / "clock"
    probe.write_bytes(b"")
    began = probe.lstat().st_ctime_ns
    while probe.lstat().st_ctime_ns == began or time.time_ns() <= probe.lstat().st_ctime_ns:
        probe.chmod(0o600)
    probe.unlink()
