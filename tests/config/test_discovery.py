"""Where the project's file is looked for."""

from pathlib import Path

import pytest

from ringfence.config.document import find_project_file
from ringfence.errors import ConfigurationError


def test_the_nearest_file_upwards_is_found(project: Path) -> None:
    """A workspace deep in a project has the project's configuration."""
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    (project / "ringfence.yaml").touch()
    assert find_project_file(deep) == project / "ringfence.yaml"
    (deep.parent / "ringfence.yaml").touch()
    assert find_project_file(deep) == deep.parent / "ringfence.yaml"


def test_the_search_ends_before_home(project: Path) -> None:
    """What lies in the home directory or above belongs to no project."""
    home = project.parent.parent
    (home / "ringfence.yaml").touch()
    (home.parent / "ringfence.yaml").touch()
    assert find_project_file(project) is None


def test_a_directory_everybody_may_write_is_passed_over(tmp_path: Path, project: Path) -> None:
    """Another user's file in /tmp says nothing about projects below it."""
    shared = tmp_path / "shared"
    (shared / "work").mkdir(parents=True)
    shared.chmod(0o1777)
    (shared / "ringfence.yaml").touch()
    assert find_project_file(shared / "work") is None


def test_a_workspace_is_resolved_before_the_search(project: Path, tmp_path: Path) -> None:
    """A link to a workspace leads to the project it is in."""
    (project / "ringfence.yaml").touch()
    (tmp_path / "link").symlink_to(project)
    assert find_project_file(tmp_path / "link") == project / "ringfence.yaml"


def test_a_misnamed_file_is_an_error(project: Path) -> None:
    """A file that would not be read is not passed over in silence."""
    (project / "ringfence.yml").touch()
    with pytest.raises(ConfigurationError, match=r"rename it to 'ringfence\.yaml'"):
        find_project_file(project)
