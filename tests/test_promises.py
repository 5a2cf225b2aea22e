"""The suite of promises itself: it knows nothing of the package, and follows what is renamed."""

import ast
from pathlib import Path

import pytest
from tests.promises import names
from tests.promises.spelling import read_document, spell_command, spell_import

FOLDER = Path(__file__).with_name("promises")
FILES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_nothing_is_imported_but_the_suites_own(file: Path) -> None:
    """No file of the suite imports the package, or other tests of it, but for what forks commands."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    assert not [name for name in found if name.split(".")[0] == "ringfence"]
    of_tests = {
        name for name in found if name.split(".")[0] == "tests" and not name.startswith("tests.promises")
    }
    assert of_tests <= ({"tests.forked"} if file.stem == "product" else set())


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.stem.startswith("test_")], ids=lambda file: file.stem
)
def test_each_promise_is_a_sentence(file: Path) -> None:
    """Each test of the suite has a docstring of one sentence."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            text = ast.get_docstring(node) or ""
            assert text.endswith("."), node.name
            assert "\n" not in text, node.name


def test_a_renamed_command_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several spellings the first one is taken that the product's help lists, else the oldest."""
    pages = {(): "Commands:\n  runs  Records.\n  audit  Old.\n", ("runs",): "Commands:\n  ls  List.\n"}
    monkeypatch.setattr("tests.promises.spelling.help_of", lambda _python, *words: pages.get(words, ""))
    monkeypatch.setattr(
        names, "COMMANDS", {"runs ls": ("runs ls", "audit ls"), "runs rm": ("runs rm", "audit rm")}
    )
    assert spell_command("python", "runs ls") == ["runs", "ls"]
    assert spell_command("python", "runs rm") == ["audit", "rm"]
    assert spell_command("python", "exec") == ["exec"]


def test_a_renamed_key_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys, states and events of JSON are given by the names that the tests use."""
    monkeypatch.setattr(names, "KEYS", {"cost": "cost_usd"})
    monkeypatch.setattr(names, "STATES", {"check_failed": "check_red"})
    monkeypatch.setattr(names, "EVENTS", {"run.created": "job.created"})
    document = [{"event": "run.created", "state": "check_failed", "data": {"cost": 1}}]
    assert read_document(document) == [
        {"event": "job.created", "state": "check_red", "data": {"cost_usd": 1}}
    ]


def test_a_moved_import_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public name is imported from the newest of its places that there is."""
    monkeypatch.setattr(names, "IMPORTS", {"dumps": ("no_such_module", "json")})
    scope: dict[str, object] = {}
    exec(spell_import("dumps"), scope)
    assert callable(scope["dumps"])
