"""Rebuilt packages use the field's terms in their names."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def identifiers() -> ModuleType:
    """The script's module: `scripts` is not a package."""
    spec = importlib.util.spec_from_file_location("identifiers", ROOT / "scripts" / "identifiers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def tell_user(): ...", "tell_user"),
        ("class CrewFile: ...", "CrewFile"),
        ("def send(*, words): ...", "words"),
        ("lent = 1", "lent"),
        ("class A:\n    slot: int", "slot"),
        ("self.known = 1", "known"),
        ("import json as whole", "whole"),
        ("async def give_back_key(): ...", "give_back_key"),
        ("for round in (): ...", "round"),
    ],
)
def test_a_name_with_another_word_is_found(identifiers: ModuleType, tmp_path: Path, code: str, name: str):
    """Functions, classes, parameters, variables, attributes and aliases are all checked, with file and line."""
    _write(tmp_path / "job" / "run.py", code)
    (found,) = identifiers.misnamed(tmp_path, ("job",))
    assert found.startswith("job/run.py:")
    assert repr(name) in found


@pytest.mark.parametrize(
    "code",
    [
        "def report_usage(request): ...",
        "unknown = keywords = 1",
        "retries = attempt = 1",
        "print(round(1.5), told)",
        "'''Nobody is told.'''",
        "discovery = recovery = 1",
    ],
)
def test_other_names_and_prose_pass(identifiers: ModuleType, tmp_path: Path, code: str):
    """Only whole words of names that the module introduces count."""
    _write(tmp_path / "job" / "run.py", code)
    assert identifiers.misnamed(tmp_path, ("job",)) == []


@pytest.mark.parametrize("name", ["asking.py", "recorded.py", "crew.py", "lending/__init__.py"])
def test_a_module_is_named_for_the_thing_it_holds(identifiers: ModuleType, tmp_path: Path, name: str):
    """Neither a participle nor a word that the field has another term for."""
    _write(tmp_path / "job" / name, "")
    assert identifiers.misnamed(tmp_path, ("job",)) != []


def test_a_module_name_occurs_once(identifiers: ModuleType, tmp_path: Path):
    """Except for a contract's: `base`, `registry`, `config`."""
    for package in ("job", "loop"):
        _write(tmp_path / package / "place.py", "")
        _write(tmp_path / package / "base.py", "")
    found = identifiers.misnamed(tmp_path, ("job", "loop"))
    assert [line.partition(":")[0] for line in found] == ["job/place.py", "loop/place.py"]


def test_a_package_that_is_not_there_is_an_error(identifiers: ModuleType, tmp_path: Path):
    """A listed package that was renamed would be checked no more."""
    with pytest.raises(FileNotFoundError, match="sandboxes"):
        identifiers.misnamed(tmp_path, ("sandboxes",))


def _write(file: Path, code: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
