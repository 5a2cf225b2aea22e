"""What all tests share."""

import gc
import itertools
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import settings

pytest_plugins = ["tests.time_limit"]
pytest.register_assert_rewrite(
    "ringfence.testing.conformance", "tests.engine.conformance"
)  # before any test imports it
settings.register_profile("unhurried", settings.default, deadline=None)  # a busy machine breaks no promise
settings.load_profile("unhurried")
settings.register_profile("fast", max_examples=20)  # `make test-fast`; see tests.cases.examples

# Whoever starts the suite in the background of a script has it ignore Ctrl-C, and so all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.get("TERM") == "dumb":
    os.environ["TERM"] = "xterm"  # what is shown live is looked at: a dumb terminal is shown nothing

gc.disable()  # nothing that the collection of tests makes is garbage, and to look for it takes a third of its time


def pytest_collection_finish() -> None:
    """What is there before the first test stays, and is not looked through again and again."""
    gc.freeze()
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of which no test will run."""
    from tests.left_out import is_left_out

    return is_left_out(collection_path, config.option.markexpr) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tiers that each test is in."""
    from tests.tiers import mark

    mark(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have tests that share a dear fixture run in one process."""
    from tests.together import Together

    return Together(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """All async tests run on asyncio."""
    return "asyncio"


_PATIENCE_S = 30.0
"""What was told to end may still be at it."""


@pytest.fixture(scope="session", autouse=True)
def nothing_remains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No process, container or volume of these tests is there after the last one."""
    yield
    from tests.leftovers import engines_below, instances_below, processes_below, things_of

    base = tmp_path_factory.getbasetemp()
    instances, engines = instances_below(base), engines_below(base)
    deadline = time.monotonic() + _PATIENCE_S
    with ThreadPoolExecutor(1) as thread:  # outside of any event loop
        while True:
            left = [*processes_below(base), *thread.submit(anyio.run, things_of, instances, engines).result()]
            if not left or time.monotonic() > deadline:
                break
            time.sleep(0.2)
    assert left == []


@pytest.fixture(scope="session")
def homes_to_be(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directories to be, one for each test; few tests make theirs."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def private_state(homes_to_be: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the state and configuration of whoever runs it."""
    home = next(homes_to_be)
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "CODEX_API_KEY",
        "RINGFENCE_HOST",
        "AGENT_LOOP_HOST",
        *(name for name in os.environ if name.lower().endswith("_proxy")),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CODEX_HOME", str(home / "codex"))
