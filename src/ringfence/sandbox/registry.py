"""Looks up backends by name, importing them on use, and chooses one for `auto`."""

import importlib
from contextlib import suppress

from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    RingfenceError,
    SandboxStartFailed,
    UsageError,
)
from ringfence.sandbox.base import Backend, Traits
from ringfence.sandbox.enforcement import refusal
from ringfence.sandbox.spec import SandboxSpec

_BACKENDS = {
    "bubblewrap": ("ringfence.sandbox.bubblewrap", "BubblewrapBackend"),
    "docker": ("ringfence.sandbox.docker.backend", "DockerBackend"),
    "podman": ("ringfence.sandbox.docker.backend", "PodmanBackend"),
    "gvisor": ("ringfence.sandbox.docker.backend", "GvisorBackend"),
    "kubernetes": ("ringfence.sandbox.kubernetes.backend", "KubernetesBackend"),
    "host": ("ringfence.sandbox.host", "HostBackend"),
}
_AUTO = ("bubblewrap", "docker")
_AUTO_WITH_IMAGE = ("docker",)
_UNFENCED = "host"
_MENDED_ELSEWHERE = (ConfigurationError, AuthenticationFailed)
"""Why a backend cannot be used that is not mended on this machine; each has an exit code of its own."""


def backend_names() -> tuple[str, ...]:
    """Names that `--sandbox` accepts, besides `auto`."""
    return tuple(_BACKENDS)


def get_backend(name: str) -> Backend:
    """Return the backend with this name.

    Raises:
        UsageError: There is none of that name.
    """
    try:
        module, class_name = _BACKENDS[name]
    except KeyError:
        raise UsageError(f"unknown sandbox backend {name!r}; known: auto, {', '.join(_BACKENDS)}") from None
    backend: Backend = getattr(importlib.import_module(module), class_name)()
    return backend


def traits_of(spec: SandboxSpec) -> Traits:
    """The traits that a spec's backend has on every machine; for `auto`, those of the first candidate.

    Raises:
        UsageError: There is no backend of that name.
    """
    return get_backend(_candidates(spec)[0]).traits


def is_fence(name: str) -> bool:
    """Whether the backend with this name, from a record or a configuration, fences its processes; imports nothing."""
    return name != _UNFENCED


async def examine(spec: SandboxSpec) -> Traits:
    """The traits that a spec's backend has for it on this machine; if no backend can be used, those on every machine."""
    with suppress(SandboxStartFailed):  # opening the sandbox reports it
        backend, _ = await choose_backend(spec)
        return await backend.examine(spec)
    return traits_of(spec)


async def image_id_of(spec: SandboxSpec) -> str | None:
    """The id of the image that a spec names now; None without an image, or if it is known only after the start."""
    if spec.image is None:
        return None
    with suppress(RingfenceError):  # opening the sandbox reports it
        backend = (await choose_backend(spec))[0] if spec.backend == "auto" else get_backend(spec.backend)
        return await backend.image_id(spec)
    return None


async def limit_refusal(spec: SandboxSpec, *, has_option: bool = True) -> str | None:
    """Why this machine refuses a sandbox of this spec for a limit that it cannot enforce; None if it does not.

    Args:
        spec: The spec of the sandbox.
        has_option: Whether the calling command has an option that would allow it.
    """
    if spec.soft_limits or not spec.explicit_limits():
        return None
    with suppress(RingfenceError):  # without a backend or engine, opening the sandbox reports the error
        return refusal(spec, (await examine(spec)).unenforced, has_option=has_option)
    return None


def _candidates(spec: SandboxSpec) -> tuple[str, ...]:
    if spec.backend != "auto":
        return (spec.backend,)
    return _AUTO if spec.image is None else _AUTO_WITH_IMAGE


async def choose_backend(spec: SandboxSpec) -> tuple[Backend, str]:
    """Choose the backend of a spec, and return the reason, too. Never the bare host, unless it is named.

    Raises:
        SandboxStartFailed: No backend can be used on this machine; the text says what each one lacks.
        UsageError: There is none of that name.
        ConfigurationError: A file that a named backend reads is wrong.
        AuthenticationFailed: A named backend's service does not accept the credentials.
    """
    if spec.backend != "auto":
        backend = get_backend(spec.backend)
        lacking = await backend.unavailable(spec)
        if isinstance(lacking, _MENDED_ELSEWHERE):
            raise lacking
        if lacking is not None:
            raise SandboxStartFailed(
                f"sandbox backend {spec.backend!r} cannot be used: {lacking}"
            ) from lacking
        return backend, "named"
    reasons = []
    for name in _candidates(spec):
        backend = get_backend(name)
        lacking = await backend.unavailable(spec)
        if lacking is None:
            return backend, "auto: " + (
                "the first that this machine can run" if spec.image is None else "an image is named"
            )
        reasons.append(f"{name}: {lacking}")
    raise SandboxStartFailed("no sandbox can be opened on this machine: " + "; ".join(reasons))
