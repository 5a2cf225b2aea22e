"""What an attempt made of the files that clients follow unasked, taken back for those who judge it."""

import pytest

from ringfence.check.tree import SYMLINK, TreeEntry
from ringfence.loop.agent_instructions import restore_agent_instructions
from ringfence.loop.repository import Change, Tree


def _tree(files: dict[str, str]) -> Tree:
    """Files by path; one that begins with `->` is a link."""
    return Tree({
        path: TreeEntry(text[2:].encode(), SYMLINK) if text.startswith("->") else TreeEntry(text.encode())
        for path, text in files.items()
    })  # fmt: skip


_MARKED = "@a.md#top **@b.md** [@c.md](x) _@d.md_, <!-- x -->@e.md<br>\n- ~~@f.md~~: `x`"
_TAKEN_IN = ("a.md", "b.md", "c.md", "d.md", "e.md", "f.md")
"""`claude` reads each of them, as it does what stands alone."""
_CASES = {
    "changed": ({"AGENTS.md": "a"}, {"AGENTS.md": "b"}),
    "removed": ({"AGENTS.md": "a"}, {}),
    "in another spelling": ({}, {"Claude.MD": "b"}),
    "further down": ({"src/CLAUDE.md": "a"}, {"src/CLAUDE.md": "b", "src/lib/CLAUDE.local.md": "b"}),
    "rules and skills": (
        {".claude/rules/a.md": "a"},
        {".claude/rules/b.md": "b", ".agents/skills/x/SKILL.md": "b"},
    ),
    "a directory in place of a file": ({"AGENTS.md": "a"}, {"AGENTS.md/x": "b"}),
    "a file in place of a directory": ({".claude/a": "a"}, {".claude": "b"}),
    "a link in place of a file": ({"CLAUDE.md": "a"}, {"CLAUDE.md": "->x", "x": "b"}),
    "what is taken in": (
        {"CLAUDE.md": "See @docs/a.md, and\n@../out", "docs/a.md": "@b\\ c.md", "docs/b c.md": "a"},
        {"CLAUDE.md": "See @docs/a.md, and\n@../out", "docs/a.md": "@b\\ c.md", "docs/b c.md": "b"},
    ),
    "what is taken in from within Markdown": (
        {"CLAUDE.md": _MARKED, **dict.fromkeys(_TAKEN_IN, "a")},
        {"CLAUDE.md": _MARKED, **dict.fromkeys(_TAKEN_IN, "b")},
    ),
    "what was not there to be taken in": ({"CLAUDE.md": "@new.md"}, {"CLAUDE.md": "@new.md", "new.md": "b"}),
    "what a link leads to": ({"CLAUDE.md": "->docs/a"}, {"CLAUDE.md": "->docs/a", "docs/a": "b"}),
    "a link above what is taken in": (
        {"CLAUDE.md": "@docs/a.md", "docs/a.md": "a"},
        {"CLAUDE.md": "@docs/a.md", "docs": "->code.py", "x": "b"},
    ),
    "what is taken in by way of a link": (
        {"CLAUDE.md": "@docs/a.md", "docs": "->d"},
        {"CLAUDE.md": "@docs/a.md", "docs": "->d", "d/a.md": "b"},
    ),
    "a link above instructions": ({"src/CLAUDE.md": "a"}, {"src": "->x", "x": "b"}),
    "what is taken in by way of two links": (
        {"CLAUDE.md": "@docs/a.md", "docs": "->d", "d": "->e"},
        {"CLAUDE.md": "@docs/a.md", "docs": "->d", "d": "->e", "e/a.md": "b"},
    ),
    "what is taken in where a link leads to": (
        {".claude/rules": "->../r", "r/a.md": "@../d/c.md", "d/c.md": "a"},
        {".claude/rules": "->../r", "r/a.md": "@../d/c.md", "d/c.md": "b"},
    ),
    "where a link leads to": ({".claude": "->c"}, {".claude": "->c", "c/rules/a.md": "b"}),
}


@pytest.mark.parametrize(("base", "candidate"), _CASES.values(), ids=_CASES)
def test_what_instructs_is_as_it_was(base: dict[str, str], candidate: dict[str, str]):
    """Files of other names stay as the attempt left them."""
    own = {"code.py": "new", "README.md": "new"}
    before, after = _tree({**base, "code.py": "old"}), _tree({**candidate, **own})
    changed = {
        path for path in before.files.keys() | after.files.keys() if before.read(path) != after.read(path)
    }
    shown = after.changed(restore_agent_instructions(before, after, changed))
    instructing = {path: item for path, item in shown.files.items() if path not in own and path != "x"}
    assert instructing == {path: item for path, item in before.files.items() if path != "code.py"}
    assert {path: shown.files[path].data for path in own} == dict.fromkeys(own, b"new")


def test_a_file_in_place_of_a_directory_with_instructions_stays():
    """There is nothing in it to follow."""
    before, after = _tree({"src/AGENTS.md": "a"}), _tree({"src": "code"})
    assert restore_agent_instructions(before, after, {"src", "src/AGENTS.md"}) == []


def test_what_names_no_file_takes_in_no_directory():
    """Else a judge would see none of what was written there."""
    base = {
        "AGENTS.md": "An alias: @src/ or @lib",
        "src/CLAUDE.md": "Write to @#all, @..., @./ or @../",
        "src/code.py": "old",
        "lib/code.py": "old",
    }
    own = {"src/code.py": "new", "lib/code.py": "new", "lib/more.py": "new"}
    assert restore_agent_instructions(_tree(base), _tree({**base, **own}), {*own}) == []


def test_a_file_in_place_of_a_directory_that_is_named_is_gone():
    """It would be taken in, as the directory never was."""
    before, after = _tree({"CLAUDE.md": "@docs", "docs/a": "a"}), _tree({"CLAUDE.md": "@docs", "docs": "b"})
    assert restore_agent_instructions(before, after, {"docs", "docs/a"}) == [Change(b"docs", None)]
