"""Ignore rules that outlive the files they came from."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.sandbox.workspace.snapshot.ignore import Rules, flatten

_LINES = st.sampled_from(
    [
        "*.o",
        "!*.o",
        "build/",
        "/a",
        "b/a",
        "**/c",
        "a/**",
        "# x",
        "",
        "\\#x",
        "\\!x",
        "a ",
        "a\\ ",
        "[ab]",
        "?",
        "!a/b/",
        "b/",
    ]
)
_NAMES = ["a", "b", "x.o", "c", "build", "#x", "!x", "a "]
_FILES = st.dictionaries(
    st.sampled_from(["", "a", "a/b", "b", "[x]"]), st.lists(_LINES, max_size=4), max_size=4
)


@pytest.mark.slow
@settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files=_FILES)
def test_one_list_says_what_all_files_say(files, tmp_path_factory, git):
    """Flattened rules leave out exactly what git leaves out by the `.gitignore` files themselves."""
    root: Path = tmp_path_factory.mktemp("tree")
    git(root, "init", "-q")
    folders = ("", "a", "a/b", "b", "[x]", "build")
    for folder in folders:
        (root / folder).mkdir(exist_ok=True)
    for folder in folders:
        for name in _NAMES:
            if not (root / folder / name).is_dir():
                (root / folder / name).touch()
    rules = {}
    for folder, lines in files.items():
        data = "\n".join(lines).encode()
        (root / folder / ".gitignore").write_bytes(data)
        rules[os.fsencode(f"{folder}/.gitignore".lstrip("/"))] = data
    expected = git(root, "ls-files", "-o", "--exclude-standard")
    flat = root.parent / f"{root.name}.rules"
    flat.write_bytes(flatten(Rules(files=rules)))
    assert git(root, "ls-files", "-o", "-X", str(flat)) == expected
