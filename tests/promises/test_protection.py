"""Files of the workspace that the user's machine runs or trusts."""

import socket

import pytest
from tests.promises.needs import Fence
from tests.promises.product import Product, says

READ_ONLY = [
    "ringfence.yaml",
    ".envrc",
    ".mcp.json",
    ".claude/settings.json",
    ".codex/config.toml",
    ".vscode/tasks.json",
    ".husky/pre-commit",
    ".github/workflows/ci.yml",
    ".npmrc",
    ".cargo/config.toml",
    ".pre-commit-config.yaml",
    "mise.toml",
]
REPORTED = ["CLAUDE.md", "AGENTS.md", ".env", ".gitattributes", ".tool-versions"]


@pytest.fixture(scope="module")
def flagged(shared: Product) -> list[str]:
    """What is named after one run that tried to change each of these files."""
    for name in READ_ONLY:
        shared.write(name, "limits: {turns: 9}\n" if name == "ringfence.yaml" else "before\n")
    for name in REPORTED:
        shared.write(name, "before\n")
    names = " ".join(READ_ONLY + REPORTED)
    shared.shell(
        f"for f in {names}; do echo after >> $f; rm -f $f; mv $f moved; rm -rf $(dirname $f)/..$f; done; "
        "mkdir -p sub/.vscode; echo x > sub/.vscode/tasks.json; echo x > .yarnrc.yml; echo x > ordinary"
    )
    named: list[str] = shared.recorded("work.exported")[0]["runs_on_your_machine"]
    return named


@pytest.mark.parametrize("name", READ_ONLY)
def test_read_only(shared: Product, flagged: list[str], name: str) -> None:
    """A file that the user's machine runs or trusts, and that is there, can be neither changed, removed nor replaced."""
    assert name not in flagged
    assert (shared.project / name).read_text() != ""
    assert "after" not in (shared.project / name).read_text()


@pytest.mark.parametrize("name", REPORTED)
def test_reported(flagged: list[str], name: str) -> None:
    """A file that agents may change, and that the user's machine follows, is named after the run."""
    assert name in flagged


@pytest.mark.parametrize("name", ["sub/.vscode/tasks.json", ".yarnrc.yml"])
def test_new_ones_are_reported(flagged: list[str], name: str) -> None:
    """One that was absent and that the agent makes, in a subdirectory too, is named after the run."""
    assert name in flagged


def test_ordinary_files_are_not_named(flagged: list[str]) -> None:
    """A file that nothing runs by itself is not named."""
    assert "ordinary" not in flagged


@pytest.mark.parametrize("mode", ["bind", "clone"])
def test_what_links_lead_to_is_read_only(product: Product, mode: str) -> None:
    """What a link at, or above, a protected path leads to in the workspace cannot be written either."""
    targets = ["config/vscode/tasks.json", "scripts/env.sh", "shared/acceptance/test_a.py"]
    for target in targets:
        product.write(target, "one\n")
    links = {".vscode": "config/vscode", ".envrc": "scripts/env.sh", "tests": str(product.project / "shared")}
    for name, target in links.items():
        (product.project / name).symlink_to(target)
    product.configure(sandbox={"protect": ["tests/acceptance/"]})
    product.git("add", "-A")
    product.git("commit", "-qm", "links")
    written = " ".join((*targets, ".vscode/tasks.json", ".envrc", "tests/acceptance/test_a.py"))
    script = f"for each in {written}; do echo two > $each && echo written; done; cat {' '.join(targets)}"
    ended = product.shell(script, "--mode", mode)
    assert ended.out.split() == ["one"] * 3, ended


def test_a_link_into_the_git_directory_shows_nothing_of_it(product: Product) -> None:
    """A link at a protected path that an earlier run made does not bring the user's own git directory in."""
    product.git("config", "remote.origin.url", "https://token-of-the-user@example.com")
    product.shell("ln -s .git/config .envrc")
    ended = product.shell("cat .envrc .git/config")
    assert "token-of-the-user" not in ended.out, ended


def test_they_can_be_listed(shared: Product, flagged: list[str]) -> None:
    """`diff --flagged` lists each of them with the reason."""
    lines = shared.does("diff", shared.runs()[0], "--flagged").out.splitlines()
    assert {line.partition(":")[0] for line in lines} == set(flagged)
    assert all(line.partition(": ")[2] for line in lines)


def test_they_are_named_at_the_end(product: Product) -> None:
    """The end of a command names each of them once, on stderr alone."""
    ended = product.shell("echo printed; echo x > CLAUDE.md; echo x > .envrc")
    assert ended.out == "printed\n"
    assert [ended.err.count(name) for name in ("CLAUDE.md", ".envrc")] == [1, 1]


@pytest.mark.parametrize("kind", ["file", "directory", "ignored"])
def test_patterns_of_ones_own(product: Product, fence: Fence, kind: str) -> None:
    """`sandbox.protect` keeps files and whole directories from being written, ignored ones too."""
    name = {"file": "golden.txt", "directory": "golden/deep/file", "ignored": "ignored/golden"}[kind]
    pattern = {"file": "golden.txt", "directory": "golden/", "ignored": "ignored/golden"}[kind]
    file = product.write(name, "before\n")
    product.configure(sandbox={"protect": [pattern]})
    assert product.shell(f"echo after > {name}", *fence).code != 0
    product.shell(f"rm -rf {name}; mv {name.split('/')[0]} moved; echo x > free", *fence)
    assert file.read_text() == "before\n"
    assert (product.project / "free").exists()


def test_protected_tests_decide(product: Product) -> None:
    """A check that is protected judges the work as it was, whatever the agent tried with it."""
    product.write("check.sh", "grep -q two app.py\n")
    product.configure(sandbox={"protect": ["check.sh"]})
    model = product.script(says("", "echo true > check.sh; rm check.sh"), says("done"))
    assert product.run(model, "--verify", "sh check.sh").ends_as("check failed")


def test_sockets_are_covered(product: Product) -> None:
    """A socket in the workspace leads to nobody from inside."""
    place = product.project / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))
        server.listen()
        place.chmod(0o777)
        asked = "import socket; socket.socket(socket.AF_UNIX).connect('s')"
        assert product.exec("python3", "-c", asked).code != 0


def test_hard_links_are_told(product: Product) -> None:
    """A file that has another name elsewhere, and so is written there too, is named in the record."""
    other = product.place / "elsewhere"
    file = product.write("linked", "x")
    other.hardlink_to(file)
    product.exec("true")
    assert any("linked" in note for note in product.recorded("work.exported")[0]["notes"])


def test_links_that_lead_out(product: Product) -> None:
    """A link in the workspace leads to nothing outside of it."""
    outside = product.place / "outside"
    outside.write_text("secret")
    outside.chmod(0o644)
    (product.project / "link").symlink_to(outside)
    assert product.exec("cat", "link").code != 0
    product.shell("echo x > link")
    assert outside.read_text() == "secret"


@pytest.mark.parametrize("mode", ["bind", "clone", "read_only"])
def test_the_repositorys_configuration_is_not_read(product: Product, mode: str) -> None:
    """A token in the address of a remote cannot be read inside, and git works there all the same."""
    product.git("remote", "add", "origin", "https://user:hunter2@example.com/x.git")
    read = "! grep -rq hunter2 . /run 2>/dev/null && git log --oneline > /dev/null"
    assert product.shell(read, "--mode", mode).code == 0


def test_a_link_in_place_of_a_directory_is_flagged(product: Product) -> None:
    """A link in the place of a directory whose files tools run is flagged: the files it leads to have other names."""
    product.shell("mkdir conf; echo 'pre-commit: {}' > conf/lefthook.yml; ln -s conf .config")
    assert ".config: " in product.does("diff", "last", "--flagged").out
