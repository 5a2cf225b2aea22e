"""Take pictures of the dashboard's pages: `python scripts/screenshots.py DIRECTORY [PAGE...]`.

A fleet of examples is made in a temporary directory; the agents' model is scripted, so that nothing costs money. Each
page is taken light and dark, and as a phone shows it. `--docs` writes the few pictures that the documentation shows,
with few colours by `pngquant`, so that they are small.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from starlette.types import ASGIApp

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.web.dashboard import Dashboard, running_dashboard  # noqa: E402 -- after the path is set
from tests.web.example import Example, example_environment, make_example, open_daemon  # noqa: E402

from ringfence.fleet.api.app import create_local_app  # noqa: E402
from ringfence.fleet.api.context import ApiContext  # noqa: E402

PHONE, DESK = (390, 844), (1180, 760)
DOCS = {"dashboard-inbox": ("inbox", "light", DESK), "dashboard-job": ("jobs/{finished}", "light", DESK),
        "dashboard-changes": ("jobs/{finished}/changes", "dark", DESK), "dashboard-phone": ("inbox", "dark", PHONE),
        "dashboard-jobs": ("jobs", "light", DESK)}  # fmt: skip


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--docs", action="store_true")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="demo-"))
    try:
        with example_environment(home):
            made = make_example(
                home, hostile="Which of the two changelogs: <CHANGELOG.md> or \u202esdwen.md?"
            )

            async def open_api() -> ASGIApp:
                return create_local_app(ApiContext.of_daemon(await open_daemon(made)))

            with running_dashboard(open_api, home) as dashboard, sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
                if given.docs:
                    _take_for_docs(browser, dashboard, made, given.directory)
                else:
                    _take_all(browser, dashboard, made, given.directory, given.pages)
                browser.close()
    finally:
        shutil.rmtree(home)


def _take_all(
    browser: Browser, dashboard: Dashboard, made: Example, directory: Path, pages: Sequence[str]
) -> None:
    job = f"jobs/{made.finished}"
    every = {
        name: name
        for name in ("inbox", "jobs", "agents", "schedules", "spend", "workers", "runs", "loops", "doctor")
    }
    every |= {
        "agent": "agents/bug-triage",
        "job": job,
        "live": f"jobs/{made.live}",
        "broken": f"jobs/{made.broken}/record",
    }
    every |= {part: f"{job}/{part}" for part in ("changes", "attempts", "record", "task")}
    every |= {
        "large": f"jobs/{made.large}/changes?file=src/all.py",
        "unknown": "jobs/none",
        "hostile": f"jobs/{made.hostile}",
    }
    for look, scheme, size in (("light", "light", DESK), ("dark", "dark", DESK), ("phone", "light", PHONE)):
        for name, path in every.items():
            if not pages or name in pages:
                _take(browser, dashboard, path, scheme, size, directory / f"{name}-{look}.png")


def _take_for_docs(browser: Browser, dashboard: Dashboard, made: Example, directory: Path) -> None:
    for name, (path, scheme, size) in DOCS.items():
        file = directory / f"{name}.png"
        _take(browser, dashboard, path.format(finished=made.finished), scheme, size, file)
        words = ["pngquant", "--force", "--output", str(file), "--speed", "1", "48", str(file)]
        subprocess.run(words, check=True)


def _take(
    browser: Browser, dashboard: Dashboard, path: str, scheme: str, size: tuple[int, int], file: Path
) -> None:
    context = browser.new_context(
        base_url=dashboard.url,
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": size[0], "height": size[1]},
        is_mobile=size == PHONE,
    )
    page = context.new_page()
    dashboard.sign_in(page)
    page.goto(path)
    page.wait_for_timeout(100)
    page.screenshot(path=file)
    context.close()


if __name__ == "__main__":
    main()
