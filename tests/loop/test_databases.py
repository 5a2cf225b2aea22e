"""Where loops lie."""

import json
import stat
from pathlib import Path

import pytest

from ringfence.config.durable import DurableSettings
from ringfence.errors import ConfigurationError, RecordError, RingfenceError, UsageError
from ringfence.loop.databases import note, noted, refuse_other, shared_by
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store.loops import LoopStore, open_database
from ringfence.loop.store.rows import LoopRow, StoryRow
from ringfence.secret import remembered

_WORD = "correct-horse-battery"
_URL = "postgresql://me:${WORD}@host/loops?sslmode=require"


def _postgres(url: str) -> DurableSettings:
    return DurableSettings(type="postgres", url=url)


def test_what_is_noted_comes_back_without_its_password(tmp_path: Path):
    """As it was written, for its owner only; who asks for the whole address has the password kept in mind."""
    found = shared_by(_postgres(_URL), {"WORD": _WORD}, Path("/src"))
    assert found is not None
    note(tmp_path, found)
    (file,) = tmp_path.iterdir()
    assert (_WORD in file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (False, 0o600)
    again = noted(tmp_path)
    assert (again, found.shown) == (found, "postgresql://me:***@host/loops")
    assert found.url({"WORD": _WORD}, loop="x") == f"postgresql://me:{_WORD}@host/loops?sslmode=require"
    assert _WORD in remembered()


def test_all_of_an_address_may_be_a_variables():
    """As on machines that are given one in their environment."""
    found = shared_by(_postgres("${WHOLE}"), {"WHOLE": "postgresql://me@host/loops"}, Path("/src"))
    assert found is not None
    assert found.shown == "postgresql://me@host/loops"


def test_a_loop_without_a_note_has_files_of_its_own(tmp_path: Path):
    """And so has one whose setting names no server."""
    assert noted(tmp_path) is None
    assert shared_by(DurableSettings(), {}, tmp_path) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url": "x", "shown": "", "source": ""}'])
def test_a_damaged_note_is_told(tmp_path: Path, text: str):
    """With its file; it is not taken for none."""
    (tmp_path / "database.json").write_text(text)
    with pytest.raises(RecordError, match=r"database\.json"):
        noted(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:${WORD}@host",
        "postgresql://me@host:${WORD}/loops",
        "${WORD}",
        "postgresql://me:${OTHER}@host/loops",
    ],
)
def test_an_address_that_is_none_is_told_without_its_parts(url: str):
    """The setting is named, not what the variables hold."""
    with pytest.raises(ConfigurationError, match=r"loop\.engine\.url") as caught:
        shared_by(_postgres(url), {"WORD": _WORD}, Path())
    assert _WORD not in str(caught.value)


@pytest.mark.parametrize(
    ("was", "said", "is_same"),
    [
        (None, None, True),
        (None, _URL, False),
        (_URL, None, False),
        (_URL, "postgresql://other@host:5432/loops", True),
        (_URL, "postgresql://me@host:5433/loops", False),
        (_URL, "postgresql://me@host/others", False),
        (_URL, "postgresql://me@/loops?host=/run/postgresql", False),
    ],
)
def test_another_database_is_told_from_the_same(
    monkeypatch: pytest.MonkeyPatch, was: str | None, said: str | None, is_same: bool
):
    """By server and name, whoever asks there."""
    monkeypatch.setenv("WORD", _WORD)
    found = None if was is None else shared_by(_postgres(was), {"WORD": _WORD}, Path())
    error: RingfenceError | None = None
    try:
        refuse_other(found, DurableSettings() if said is None else _postgres(said), loop="x")
    except UsageError as exc:
        error = exc
    assert (error is None) == is_same, error


async def test_texts_can_be_kept_by_every_database(tmp_path: Path):
    """Postgres knows no NUL, and an agent's question may hold one."""
    database = open_database(f"sqlite:///{tmp_path / 'loop.db'}")
    store = LoopStore(database, "x")
    row = LoopRow(
        "x", "/src", LoopState.RUNNING, "a\0", json.dumps({}), "{}", "b", "c", "r", 1, False, 0, 0, None
    )
    story = StoryRow("x", "s\0", 0, StoryState.WAITING, "", 1, 0, "", None, None, None, None, None)
    await store.create(row, [story])
    await store.change("s\N{REPLACEMENT CHARACTER}", reason="what\0 now?")
    assert [each.reason for each in await store.stories()] == ["what\N{REPLACEMENT CHARACTER} now?"]
    assert (await store.get()).reason == "a\N{REPLACEMENT CHARACTER}"
    await store.remove()
    assert await store.stories() == []
    database.close()
