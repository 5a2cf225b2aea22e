"""The system's Chromium, for tests of pages in a real browser."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Chromium without a window. While it runs, so does its event loop: no other test of the process could run one."""
    program = shutil.which("chromium")
    if program is None:
        assert "CI" not in os.environ, "chromium is missing"
        pytest.skip("chromium is missing")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program)
        yield started
        started.close()
