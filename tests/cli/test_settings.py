"""What options come to."""

from pathlib import Path

import pytest

from ringfence.cli.settings import load_settings, warn_about
from ringfence.config.trust import trust_content


@pytest.mark.parametrize("given", ["tools/it", "./tools/it", "../shop/tools/it", "linked/../tools/it"])
def test_paths_are_those_that_the_shell_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """From the current directory, with `..` as the kernel takes it."""
    shop = tmp_path / "shop"
    (shop / "tools").mkdir(parents=True)
    (shop / "tools" / "it").touch()
    (shop / "tools" / "it.d").mkdir()
    (shop / "linked").symlink_to(shop / "tools")
    monkeypatch.chdir(shop)
    path = Path(given)
    settings = load_settings(Path(), output_schema=path, cli_path=path, plugin=[Path(f"{given}.d")]).settings
    found = shop / "tools/it"
    assert (settings.run.output_schema, settings.client.path, settings.client.plugins) == (
        found,
        found,
        (shop / "tools/it.d",),
    )


def test_a_path_without_detours_stays_as_it_is(tmp_path: Path) -> None:
    """It may be one inside an image, where a link of the host means nothing."""
    link = tmp_path / "claude"
    link.symlink_to("/bin/true")
    assert load_settings(Path(), cli_path=link).settings.client.path == link


def test_a_warning_says_what_a_trusted_file_changed_and_how_to_end_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The value with that which it replaces, and its place; the values of variables are not printed."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True)
    file = project / "ringfence.yaml"
    file.write_text("sandbox:\n  memory: 4g\n  env: {A: confidential}\n")
    trust_content(file, file.read_bytes())
    warn_about(load_settings(project))
    assert capsys.readouterr().err.splitlines() == [
        f"ringfence: WARNING: sandbox.memory is 4g instead of 2g (set by {file}:2:11)",
        f"ringfence: WARNING: sandbox.env.A has a value of its own (set by {file}:3:12)",
        (
            f"ringfence: {file} may weaken settings because you trust it; "
            f"`ringfence config trust --revoke {file}` ends that"
        ),
    ]
