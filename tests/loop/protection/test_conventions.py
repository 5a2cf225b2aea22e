"""Which paths are tests, by the conventions of the runners."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.check.protected_files import Conventions
from ringfence.check.tree import is_cache, is_plain_path

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


@pytest.mark.parametrize("runner", TESTS)
def test_each_runners_tests_are_known(runner):
    """What a runner would collect, and its data, are tests; product code is not, however alike it sounds."""
    assert [path for path in TESTS[runner] if not Conventions(frozenset({runner})).is_test(path)] == []
    assert [path for path in PRODUCT[runner] if Conventions(frozenset({runner})).is_test(path)] == []


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
    assert [path for path in caches if not is_cache(path)] == []
    assert [
        path for path in ["src/cache.py", "pycache/a.py", ".coveragerc", "tests/a.py"] if is_cache(path)
    ] == []


@given(st.text(max_size=60))
def test_any_path_is_judged(path):
    """Whatever a path is made of, it is a test or not, and plain or not; one that leaves the tree is not plain."""
    assert Conventions().is_test(path) in (True, False)
    assert not (is_plain_path(path) and (path.startswith("/") or ".." in path.split("/") or "\0" in path))


@pytest.mark.parametrize(
    "path",
    ["", "/a", "a//b", "a/", "./a", "a/../b", ".git/config", "a/.GiT/x", "git~1/x", ".g\u200cit/x", "a\0"],
)
def test_paths_that_no_project_has(path):
    """Nothing leaves the tree or gets into git's own directory, however it is spelled."""
    assert not is_plain_path(path)
