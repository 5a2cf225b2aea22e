"""Names of version 0.1 that are still read."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ringfence.config.layer import document_layer
from ringfence.config.old_names import fleet_database, old_names_in, rename_database, with_new_names
from ringfence.config.yaml import parse_document
from ringfence.errors import ConfigurationError

_OLD = b"crew:\n  name: night\nrun: {model: m}\n"


def test_the_old_key_is_read_with_a_notice() -> None:
    """Values keep their places, and the notice says where the old name stands."""
    document = with_new_names(parse_document(_OLD, Path("/p/ringfence.yaml")))
    assert document.values == {"fleet": {"name": "night"}, "run": {"model": "m"}}
    assert document.place(("fleet", "name")).line == 2
    (notice,) = old_names_in(document)
    assert notice.startswith("/p/ringfence.yaml:1:1: `crew` is called `fleet` now")


def test_the_new_key_has_no_notice() -> None:
    """A file without the old name stays as it is."""
    document = parse_document(b"fleet: {name: night}", Path("/p/ringfence.yaml"))
    assert with_new_names(document) is document
    assert list(old_names_in(document)) == []


def test_both_keys_are_refused() -> None:
    """Nothing says which of them holds."""
    document = parse_document(b"fleet: {name: a}\ncrew: {name: b}\n", Path("/p/ringfence.yaml"))
    with pytest.raises(ConfigurationError, match="the file has both") as refused:
        with_new_names(document)
    assert (refused.value.line, refused.value.column) == (2, 1)


def test_a_run_does_not_read_the_old_key() -> None:
    """It is about a fleet, as the new one is."""
    document = parse_document(_OLD, Path("/p/ringfence.yaml"))
    assert document_layer(document, "project").values == {"run": {"model": "m"}}


def _written(folder: Path) -> sqlite3.Connection:
    """A database of version 0.1 that is open, with a row in its write-ahead log."""
    link = sqlite3.connect(folder / "crew.db", isolation_level=None)
    link.execute("PRAGMA journal_mode = WAL")
    link.execute("CREATE TABLE jobs (id TEXT)")
    link.execute("INSERT INTO jobs VALUES ('one')")
    return link


def test_the_old_database_is_renamed_with_all_that_is_in_it(tmp_path: Path) -> None:
    """Also what a process that was killed left in the write-ahead log, and with the directory of executors' locks."""
    killed, state = tmp_path / "killed", tmp_path / "state"
    killed.mkdir()
    state.mkdir()
    with closing(_written(killed)):
        for file in killed.iterdir():
            (state / file.name).write_bytes(file.read_bytes())
    (state / "crew.db.executors").mkdir()
    assert (state / "crew.db-wal").stat().st_size > 0
    notice = rename_database(state)
    assert notice is not None
    assert "was renamed to 'fleet.db'" in notice
    assert sorted(file.name for file in state.iterdir()) == ["fleet.db", "fleet.db.executors"]
    with closing(sqlite3.connect(fleet_database(state))) as link:
        assert link.execute("SELECT id FROM jobs").fetchall() == [("one",)]
    assert rename_database(state) is None


def test_an_old_database_that_is_open_is_used_as_it_is(tmp_path: Path) -> None:
    """Whoever has it open would go on with files that others no longer find."""
    with closing(_written(tmp_path)):
        notice = rename_database(tmp_path)
        assert notice is not None
        assert "is used as it is" in notice
        assert fleet_database(tmp_path) == tmp_path / "crew.db"
    assert "was renamed" in (rename_database(tmp_path) or "")


def test_a_new_state_directory_has_the_new_name(tmp_path: Path) -> None:
    """And nothing is told of it."""
    assert (rename_database(tmp_path), fleet_database(tmp_path)) == (None, tmp_path / "fleet.db")


def test_an_old_database_beside_a_new_one_is_named(tmp_path: Path) -> None:
    """It was made by version 0.1 after the new one: neither is changed, and the notice says which is ignored."""
    _written(tmp_path).close()
    (tmp_path / "fleet.db").touch()
    notice = rename_database(tmp_path) or ""
    assert "crew.db' is ignored" in notice
    assert fleet_database(tmp_path) == tmp_path / "fleet.db"
    assert (tmp_path / "crew.db").exists()
