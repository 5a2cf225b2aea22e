"""Product code that is about the runner."""

import pytest
from tests.loop.freeze.trees import attempt, rules

from ringfence.check.freeze.model import Guard

REACHING = [
    ("a.py", b"import pytest\n", "runner_import"),
    ("a.py", b"def f():\n    from _pytest.reports import TestReport\n", "runner_import"),
    ("a.py", b"import unittest.mock as m\n", "runner_import"),
    ("a.py", b"import importlib\nimportlib.import_module('_pytest.runner')\n", "runner_import"),
    ("a.py", b"__import__('sitecustomize')\n", "runner_import"),
    ("a.py", b"import builtins\nbuiltins.__import__ = None\n", "runner_import"),
    ("a.py", b"import builtins\nsetattr(builtins, 'assert', 1)\n", "runner_import"),
    ("a.py", b"__builtins__['len'] = 1\n", "runner_import"),
    ("a.py", b"import sys\nsys.meta_path.insert(0, 1)\n", "runner_import"),
    ("a.py", b"import sys\nx = sys.modules['pytest']\n", "asks_for_tests"),
    ("a.py", b"import sys\nif 'pytest' in sys.modules: pass\n", "asks_for_tests"),
    ("a.py", b"import os\nif os.environ.get('PYTEST_CURRENT_TEST'): pass\n", "asks_for_tests"),
    ("a.py", b"def pytest_runtest_makereport(item, call): pass\n", "runner_import"),
    ("a.py", b"pytest_runtest_makereport = print\n", "runner_import"),
    ("a.py", b"from a.b import pytest_runtest_call\n", "runner_import"),
    ("a/__init__.py", b"def load_tests(loader, tests, pattern): return tests\n", "runner_import"),
    ("a/__init__.py", b"load_tests = lambda loader, tests, pattern: tests\n", "runner_import"),
    ("a/__init__.py", b"from a.b import pick as load_tests\n", "runner_import"),
    ("a.py", b"type X[T] = = broken\nimport pytest\n", "runner_import"),
    ("a.py", b"# -*- coding: utf-7 -*-\n+AGkAbQBwAG8AcgB0 pytest\n", "runner_import"),
    ("a.mjs", b"import { mock } from 'node:test';\n", "runner_import"),
    ("a.ts", b"if (process.env.JEST_WORKER_ID) {}\n", "asks_for_tests"),
    ("a.js", b"const M = require('module'); Module._load = x;\n", "runner_import"),
    ("a.go", b'package a\n\nimport (\n\t"os"\n\t"testing"\n)\n', "runner_import"),
    ("a.go", b'package a\n\nimport ("os"; "testing")\n', "runner_import"),
    ("a.go", b"package a\n\n//go:linkname fail testing.(*common).Fail\nfunc fail()\n", "runner_import"),
    ("a.go", b'package a\n\nvar x = flag.Lookup("test.v")\n', "asks_for_tests"),
    ("src/a.rs", b"fn f() { if cfg!(test) { } }\n", "asks_for_tests"),
    ("src/a.rs", b"macro_rules! assert_eq { () => {} }\n", "runner_import"),
    ("src/main/java/A.java", b"package org.junit.jupiter.api;\n", "runner_import"),
    ("src/main/java/A.java", b"import org.junit.jupiter.api.Test;\n", "runner_import"),
]


@pytest.mark.parametrize(("path", "data", "rule"), REACHING, ids=[f"{c[0]} {c[1][-24:]!r}" for c in REACHING])
def test_product_code_that_reaches_for_the_runner_is_found(path, data, rule):
    """Code that is no test has nothing to do with what runs tests; it is told what was seen."""
    (found,) = attempt({}, {path: data})
    assert (found.rule, found.path) == (rule, path)


@pytest.mark.parametrize(
    "data", [b"import latest\n", b"pytest = 1\n", b"from . import unittest\n", b"'import pytest'\n"]
)
def test_words_alone_are_no_reaching(data):
    """A name in a string, a variable or a module of one's own is no import of the runner."""
    assert attempt({}, {"a.py": data}) == []


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("a.rs", b"macro_rules! assert_near { () => {} }\n#![cfg_attr(not(test), no_std)]\n"),
        ("a.rs", b"#[cfg_attr(test, derive(PartialEq))]\nstruct A;\n"),
        ("a.go", b'package a\n\nimport ("os")\n\nvar x = f("testing")\n'),
        ("a.py", b"pytest_args = []\n"),
    ],
    ids=["macro and std", "derive", "argument", "name"],
)
def test_what_only_sounds_alike_is_no_reaching(path, data):
    """Helpers and settings with names like those."""
    assert attempt({}, {path: data}, Guard(frozenset({"pytest", "go", "cargo"}))) == []


def test_what_was_there_before_is_no_tampering():
    """A project that ships helpers for tests may go on with them; what is new in it is found."""
    was = b"import pytest\n"
    assert attempt({"a.py": was}, {"a.py": was + b"x = 1\n"}) == []
    assert rules(attempt({"a.py": was}, {"a.py": was + b"import unittest\n"})) == {"runner_import"}


def test_it_can_be_allowed():
    """Where the story is a plugin for the runner, the rule is lifted by name."""
    assert attempt({}, {"a.py": b"import pytest\n"}, Guard(allowed=frozenset({"runner_import"}))) == []
