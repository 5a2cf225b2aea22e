"""Backends by name."""

from typing import get_args

import pytest

from ringfence.config.names import BackendName
from ringfence.errors import SandboxStartFailed, UsageError
from ringfence.sandbox import SandboxSpec, registry
from ringfence.sandbox.registry import backend_names, choose_backend, get_backend


def test_unknown_name() -> None:
    """An unknown name is the caller's error and tells the known ones."""
    with pytest.raises(
        UsageError, match=r"'dokcer'.*auto, bubblewrap, docker, podman, gvisor, kubernetes, host"
    ):
        get_backend("dokcer")


def test_the_configuration_accepts_the_names_of_all_backends() -> None:
    """It lists them itself, because it imports no sandbox."""
    assert get_args(BackendName) == ("auto", *backend_names())


@pytest.mark.parametrize("name", backend_names())
def test_every_name_is_a_backend(name: str) -> None:
    """Each name that is offered can be had, and knows its name."""
    assert get_backend(name).name == name


async def test_auto_is_a_fence() -> None:
    """`auto` takes a fence, and says why."""
    backend, why = await choose_backend(SandboxSpec())
    assert backend.traits.is_fence
    assert why.startswith("auto: ")


async def test_auto_is_never_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no fence can be had `auto` refuses, with what each lacks; it does not take the host."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setattr("ringfence.sandbox.bubblewrap.backend.find_bwrap", lambda: None)
    with pytest.raises(SandboxStartFailed, match=r"bubblewrap: no bwrap of version.*docker: .*image"):
        await choose_backend(SandboxSpec())
    assert "host" not in registry._AUTO + registry._AUTO_WITH_IMAGE
