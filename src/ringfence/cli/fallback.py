"""`sandbox.fallback: host`: what is done where no fence can be had. Said aloud, and in the record."""

from dataclasses import replace
from typing import TYPE_CHECKING

from ringfence.errors import RingfenceError

if TYPE_CHECKING:
    from ringfence.config import Effective

_OF_CONTAINERS = ("image", "engine", "runtime", "network", "labels", "tmp_exec")


def fall_back(effective: "Effective") -> "Effective":
    """The configuration with the bare host, if it allows that and its fence cannot be used here; else as it is."""
    import anyio

    from ringfence.config.model import SandboxSettings
    from ringfence.config.origin import Origin

    sandbox = effective.settings.sandbox
    if sandbox.fallback != "host" or sandbox.backend == "host":
        return effective
    reason = anyio.run(_lacking, effective)
    if reason is None:
        return effective
    defaults = SandboxSettings()
    changes = {name: getattr(defaults, name) for name in _OF_CONTAINERS}
    # A limit that was asked for has only the watchdog left.
    bare = sandbox.model_copy(update={**changes, "backend": "host", "soft_limits": True})
    origin = Origin("default", f"sandbox.fallback, because {reason}")
    return replace(
        effective,
        settings=effective.settings.model_copy(update={"sandbox": bare}),
        origins={
            **effective.origins,
            "sandbox.backend": origin,
            "sandbox.soft_limits": replace(origin, name="sandbox.fallback"),
        },
    )


async def _lacking(effective: "Effective") -> str | None:
    from ringfence.job.asked.sandbox import spec_of
    from ringfence.sandbox.registry import choose_backend

    try:
        await choose_backend(spec_of(effective, None))
    except RingfenceError as exc:
        return str(exc)
    return None
