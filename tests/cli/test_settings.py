"""What options come to."""

from pathlib import Path

import pytest

from ringfence.cli.settings import load_settings


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
