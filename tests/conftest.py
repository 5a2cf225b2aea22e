"""What all tests share."""

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("ringfence.testing.conformance")  # before any test imports it
settings.register_profile("fast", max_examples=20)  # `make test-fast`; what sets a number of its own keeps it


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """All async tests run on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def private_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the state and configuration of whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    for name in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "RINGFENCE_HOST",
        "AGENT_LOOP_HOST",
    ):
        monkeypatch.delenv(name, raising=False)
