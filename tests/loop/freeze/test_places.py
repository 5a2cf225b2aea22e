"""Conventions of the runners, and what the test writer may write."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.loop.freeze.trees import Change, items

from ringfence.check.freeze import Item, is_leftover, only_tests
from ringfence.check.freeze.model import SYMLINK, Guard, Runner
from ringfence.check.freeze.places import is_plain_path, is_test_path

TESTS = {
    "pytest": ["test_a.py", "src/pkg/a_test.py", "tests/helpers.py", "tests/data/a.bin", "test/a.json"],
    "unittest": ["test_a.py", "tests.py", "app/testviews.py", "tests/__init__.py"],
    "node": [
        "a.test.js",
        "lib/a.spec.tsx",
        "test/a.js",
        "__tests__/a.ts",
        "a-test.mjs",
        "test-a.cjs",
        "__snapshots__/a.snap",
    ],
    "go": ["a_test.go", "pkg/testdata/a.txt"],
    "cargo": ["tests/a.rs", "crates/one/tests/data/a.json"],
    "maven": ["src/test/java/A.java", "src/test/resources/a.xml", "core/src/it/a.txt", "CartTest.java"],
}
PRODUCT = {
    "pytest": ["latest.py", "src/contest.py", "attest/a.py"],
    "unittest": ["attest.py"],
    "node": ["lib/latest.js", "contest.ts"],
    "go": ["test.go", "tests/a.go"],
    "cargo": ["src/test.rs", "benches/a.rs"],
    "maven": ["src/main/java/LoadTest.java", "src/main/resources/a.xml"],
}


@pytest.mark.parametrize("runner", get_args(Runner))
def test_each_runners_tests_are_known(runner):
    """What a runner would collect, and its data, are tests; product code is not, however alike it sounds."""
    assert [path for path in TESTS[runner] if not is_test_path(path, [runner])] == []
    assert [path for path in PRODUCT[runner] if is_test_path(path, [runner])] == []


def test_the_test_writer_may_write_tests_only():
    """Tests, their data and their fixtures are kept; anything else is dropped and named."""
    after = items(
        {
            "tests/test_a.py": b"",
            "tests/conftest.py": b"",
            "tests/data/a.json": b"{}",
            "src/a.py": b"",
            "conftest.py": b"",
            "pyproject.toml": b"",
            "tests/link": Item(b"/etc/passwd", SYMLINK),
            "tests/../src/b.py": b"",
        }
    )
    kept, dropped = only_tests(
        [Change(path) for path in after], after=after.get, guard=Guard(frozenset({"pytest"}))
    )
    assert [each.path for each in kept] == ["tests/test_a.py", "tests/conftest.py", "tests/data/a.json"]
    assert {each.path for each in dropped} == set(after) - {each.path for each in kept}
    assert str(dropped[0]) == "'src/a.py' is no test and no data of one"


def test_what_runners_leave_behind_is_nobodys_work():
    """Caches are known as such, so that an agent that ran its tests is not blamed for them, and none of them is kept."""
    caches = [
        "src/__pycache__/a.pyc",
        "tests/__pycache__/b.pyc",
        ".pytest_cache/v/x",
        "a/.coverage",
        "b.pyc",
        ".ruff_cache/0",
    ]
    assert [path for path in caches if not is_leftover(path)] == []
    assert [
        path for path in ["src/cache.py", "pycache/a.py", ".coveragerc", "tests/a.py"] if is_leftover(path)
    ] == []


@given(st.text(max_size=60))
def test_any_path_is_judged(path):
    """Whatever a path is made of, it is a test or not, and plain or not; one that leaves the tree is not plain."""
    assert is_test_path(path) in (True, False)
    assert not (is_plain_path(path) and (path.startswith("/") or ".." in path.split("/") or "\0" in path))


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a//b", "a/", "./a", "a/../b", ".git/config", "a/.GiT/x", "git~1/x", ".g\u200cit/x", "a\0"],
)
def test_paths_that_no_project_has(path):
    """Nothing leaves the tree or gets into git's own directory, however it is spelled."""
    assert not is_plain_path(path)
