"""Toolchains: the table's roots are shown, and nothing that a link points to."""

from pathlib import Path

import pytest

from ringfence.sandbox.bubblewrap.view import find_toolchains


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with toolchains, and with credentials beside them."""
    for name in (
        ".cargo/bin",
        ".pyenv/versions/3.12/bin",
        ".pyenv/shims",
        ".nvm/versions",
        ".ssh",
        ".local/bin",
    ):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".cargo/credentials.toml").write_text("secret")
    (tmp_path / ".local/share/keyrings").mkdir(parents=True)
    return tmp_path


def test_roots(home: Path) -> None:
    """What is installed of the table is shown."""
    found = find_toolchains(home, "", hide=False)
    shown = {str(root.relative_to(home)) for root in found.roots}
    assert shown == {".cargo/bin", ".pyenv/versions", ".pyenv/shims", ".nvm/versions", ".local/bin"}
    assert found.environment["PYENV_ROOT"] == str(home / ".pyenv")


@pytest.mark.parametrize(
    "name", [".local/share/claude/versions", ".local/lib/node_modules", ".npm-global/bin"]
)
def test_where_agents_programs_are_put(home: Path, name: str) -> None:
    """By their own installer and by npm; links in `.local/bin` lead there."""
    (home / name).mkdir(parents=True)
    assert home / name in find_toolchains(home, "", hide=False).roots


@pytest.mark.parametrize(
    "secret", [".cargo/credentials.toml", ".ssh", ".local/share/keyrings", ".cargo", "."]
)
def test_credentials(secret: str, home: Path) -> None:
    """Nothing that is shown holds credentials."""
    path = home / secret
    assert not any(
        path.is_relative_to(root) or root == path for root in find_toolchains(home, "", hide=False).roots
    )


def test_search_path(home: Path) -> None:
    """PATH inside names what can be seen inside, in the user's order, and the system's."""
    user_path = f"{home}/.cargo/bin:{home}/.ssh:relative:{home}/project/venv/bin:/usr/bin:"
    path = find_toolchains(home, user_path, hide=False).environment["PATH"].split(":")
    assert path[:2] == [f"{home}/.cargo/bin", "/usr/bin"]
    assert not {f"{home}/.ssh", "relative", f"{home}/project/venv/bin", ""} & set(path)
    assert "/bin" in path


def test_activated_venv(home: Path) -> None:
    """What of PATH lies in the workspace stays on it: an activated venv is meant."""
    found = find_toolchains(
        home, f"{home}/project/.venv/bin:/usr/bin", hide=False, workspace=home / "project"
    )
    assert found.environment["PATH"].startswith(f"{home}/project/.venv/bin:/usr/bin")


def test_hidden(home: Path) -> None:
    """Where toolchains are hidden none is shown, but what the guest needs."""
    found = find_toolchains(home, f"{home}/.cargo/bin", hide=True, extra=(home / ".pyenv/versions/3.12",))
    assert found.roots == (home / ".pyenv/versions/3.12",)
    assert f"{home}/.cargo/bin" not in found.environment["PATH"]


def test_hostile_venv(home: Path) -> None:
    """Where a venv's links point is not shown: its maker may be who wants to read it."""
    venv = home / "project/.venv/bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to(home / ".ssh/id_ed25519")
    found = find_toolchains(home, f"{venv}:/usr/bin", hide=False)
    assert not any((home / ".ssh").is_relative_to(root) for root in found.roots)
    assert str(venv) not in found.environment["PATH"]


def test_relinked_root(home: Path) -> None:
    """A root that was made a link to somewhere else is not shown as that somewhere."""
    (home / ".bun").mkdir()
    (home / ".bun/bin").symlink_to(home / ".ssh")
    assert home / ".bun/bin" not in find_toolchains(home, "", hide=False).roots
