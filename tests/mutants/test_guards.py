"""The list of guards stays true to the tree: each guard is where it is said to be, and so are its tests."""

from pathlib import Path

import pytest
from tests.mutants.guard_list import Guard, problems_of, read_guards

GUARDS = read_guards()
GUARD = Guard("one", "Something is lost.", "one.py", "if is_bad:", "if False:", ("test_one.py::test_it",))


@pytest.fixture(name="tree")
def _tree(tmp_path: Path) -> Path:
    """A tree with one guard and one test."""
    (tmp_path / "src/ringfence").mkdir(parents=True)
    (tmp_path / GUARD.path).write_text("if is_bad:\n    raise ValueError\n")
    (tmp_path / "test_one.py").write_text("def test_it():\n    pass\n")
    return tmp_path


def test_each_guard_is_where_the_list_says():
    """Its text is there exactly once, the mutant is valid Python, and the tests that should notice exist."""
    assert [problem for guard in GUARDS for problem in problems_of(guard)] == []


def test_ids_are_distinct():
    """A guard can be chosen by its id."""
    assert len({guard.id for guard in GUARDS}) == len(GUARDS)


def test_each_guard_says_what_it_prevents():
    """In one sentence."""
    assert [guard.id for guard in GUARDS if not guard.prevents.endswith(".") or "\n" in guard.prevents] == []


def test_a_sound_guard_has_no_problem(tree: Path):
    """A guard that is as the list says is taken."""
    assert problems_of(GUARD, tree) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("pass\n", "guard moved: update the list", id="gone"),
        pytest.param("if is_bad: pass\nif is_bad: pass\n", "guard moved: update the list", id="twice"),
        pytest.param(None, "guard moved: update the list", id="no-file"),
        pytest.param("while True:\n    if is_bad:\n", "the mutant is no Python", id="no-python"),
    ],
)
def test_a_guard_that_moved_is_named(tree: Path, text: str | None, problem: str):
    """A guard that was moved is reported, with the request to update the list."""
    file = tree / GUARD.path
    file.unlink() if text is None else file.write_text(text)
    (found,) = problems_of(GUARD, tree)
    assert found.startswith("one: ")
    assert problem in found


def test_a_test_that_is_gone_is_named(tree: Path):
    """A test that was removed is reported with the guards that name it."""
    (tree / "test_one.py").write_text("def test_another():\n    pass\n")
    assert problems_of(GUARD, tree) == ["one: there is no test 'test_one.py::test_it'"]
