"""Names and places of refs."""

import subprocess

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import examples

from ringfence.sandbox.workspace.git.refs import Refs, is_ref_name


@settings(max_examples=examples(150), deadline=None)
@example("refs/heads/a/@")
@example("refs/heads/@")
@example("refs/heads/a.")
@example("refs/heads/a./b")
@given(
    st.text(alphabet="abc/.@{}~^:?*[\\ -lock\x01é", min_size=1, max_size=10).map(
        lambda text: f"refs/heads/{text}"
    )
)
def test_never_more_than_git_allows(name: str):
    """No name that git refuses is taken for a ref's."""
    if is_ref_name(name):
        assert subprocess.run(["git", "check-ref-format", name], check=False).returncode == 0


def test_head_commit():
    """HEAD leads to a commit through a branch, by itself, or not at all."""
    direct = {"refs/heads/main": "a" * 40}
    assert Refs(b"ref: refs/heads/main\n", direct, {}).head_commit() == "a" * 40
    assert Refs(b"b" * 40 + b"\n", direct, {}).head_commit() == "b" * 40
    assert Refs(b"ref: refs/heads/none\n", direct, {}).head_commit() is None
