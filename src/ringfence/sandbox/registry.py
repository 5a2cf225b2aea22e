"""Backends by name, imported on use; and the choice that `auto` makes."""

import importlib
from contextlib import suppress

from ringfence.errors import RingfenceError, SandboxStartFailed, UsageError
from ringfence.sandbox.base import Backend
from ringfence.sandbox.enforcement import refusal
from ringfence.sandbox.spec import SandboxSpec

_BACKENDS = {
    "bubblewrap": ("ringfence.sandbox.bubblewrap", "BubblewrapBackend"),
    "docker": ("ringfence.sandbox.docker.backend", "DockerBackend"),
    "podman": ("ringfence.sandbox.docker.backend", "PodmanBackend"),
    "gvisor": ("ringfence.sandbox.docker.backend", "GvisorBackend"),
    "sbx": ("ringfence.sandbox.sbx", "SbxBackend"),
    "host": ("ringfence.sandbox.host", "HostBackend"),
}
_AUTO = ("bubblewrap", "docker")
_AUTO_WITH_IMAGE = ("docker",)


def backend_names() -> tuple[str, ...]:
    """Names that `--sandbox` accepts, besides `auto`."""
    return tuple(_BACKENDS)


def get_backend(name: str) -> Backend:
    """The backend called `name`.

    Raises:
        UsageError: There is none of that name.
    """
    try:
        module, class_name = _BACKENDS[name]
    except KeyError:
        raise UsageError(f"unknown sandbox backend {name!r}; known: auto, {', '.join(_BACKENDS)}") from None
    backend: Backend = getattr(importlib.import_module(module), class_name)()
    return backend


async def why_unseen(spec: SandboxSpec) -> str | None:
    """Why the backend of a spec cannot mount this machine's directories; None if it can, or none can be used."""
    if spec.image is None:
        return None  # only engines may be elsewhere
    with suppress(SandboxStartFailed):  # told when the sandbox is opened
        backend, _ = await choose_backend(spec)
        return await backend.why_unseen(spec)
    return None


async def image_id(spec: SandboxSpec) -> str | None:
    """What the name of a spec's image means now; None without one, or where it cannot be told."""
    if spec.image is None:
        return None
    with suppress(SandboxStartFailed):  # told when the sandbox is opened
        backend, _ = await choose_backend(spec)
        return await backend.image_id(spec)
    return None


async def limit_refusal(spec: SandboxSpec, *, has_option: bool = True) -> str | None:
    """Why a sandbox of this spec is refused for a limit that cannot be enforced on this machine; None if it is not.

    Args:
        spec: Of the sandbox.
        has_option: Whether the command that asks has an option that would allow it.
    """
    if spec.soft_limits or not spec.asked_limits():
        return None
    with suppress(RingfenceError):  # no backend, no engine: told when the sandbox is opened
        backend, _ = await choose_backend(spec)
        return refusal(spec, await backend.lacking_limits(spec), has_option=has_option)
    return None


async def choose_backend(spec: SandboxSpec) -> tuple[Backend, str]:
    """The backend of a spec, and why it was chosen. Never the bare host, unless it is named.

    Raises:
        SandboxStartFailed: None can be used on this machine; the text says what each lacks.
        UsageError: There is none of that name.
    """
    if spec.backend != "auto":
        backend = get_backend(spec.backend)
        lacking = await backend.unavailable(spec)
        if lacking is not None:
            raise SandboxStartFailed(f"sandbox backend {spec.backend!r} cannot be used: {lacking}")
        return backend, "named"
    reasons = []
    for name in _AUTO if spec.image is None else _AUTO_WITH_IMAGE:
        backend = get_backend(name)
        lacking = await backend.unavailable(spec)
        if lacking is None:
            return backend, "auto: " + (
                "the first that this machine can run" if spec.image is None else "an image is named"
            )
        reasons.append(f"{name}: {lacking}")
    raise SandboxStartFailed("no sandbox can be opened on this machine: " + "; ".join(reasons))
