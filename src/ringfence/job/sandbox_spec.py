"""Builds the spec of the sandbox that the configuration describes, with its fallback, and refuses what is impossible."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.config.paths import state_dir
from ringfence.errors import PolicyRefused, RingfenceError, UsageError
from ringfence.sandbox import SandboxSpec

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.sandbox.base import Traits

_OF_CONTAINERS = ("image", "engine", "runtime", "network", "labels", "tmp_exec", "kubernetes")


def spec_of(effective: "Effective", workspace: Path | None) -> SandboxSpec:
    """Return the spec of the sandbox that the configuration describes.

    Raises:
        UsageError: A value is not valid for a sandbox.
    """
    from ringfence.config.egress import Egress
    from ringfence.config.engine_access import EngineAccess
    from ringfence.sandbox import Mount

    settings = effective.settings
    arguments = settings.sandbox.spec_arguments()
    arguments.pop("protect", None)  # concerns the workspace: `RunRequest.protect`
    arguments.pop("fallback", None)  # concerns the choice of a backend: `with_fallback`
    arguments["unsafe"] = settings.unsafe
    engine = settings.engine
    if engine.label is not None:
        arguments["engine_access"] = EngineAccess(
            label=engine.label, allow=engine.allow, socket=engine.socket
        )
    arguments["egress"] = Egress(
        allow=settings.egress.allow, deny=settings.egress.deny, swap=settings.egress.swap
    )
    arguments["mounts"] = tuple(Mount(**mount) for mount in arguments.get("mounts", ()))
    return SandboxSpec(workspace=workspace, **arguments)


async def with_fallback(effective: "Effective") -> "Effective":
    """The configuration, with the bare host if `sandbox.fallback` allows that and no fence is available."""
    from ringfence.config.document import Origin
    from ringfence.config.model import SandboxSettings
    from ringfence.sandbox.registry import choose_backend

    sandbox = effective.settings.sandbox
    if sandbox.fallback != "host" or sandbox.backend == "host":
        return effective
    try:
        await choose_backend(spec_of(effective, None))
    except RingfenceError as exc:
        reason = str(exc)
    else:
        return effective
    defaults = SandboxSettings()
    changes = {name: getattr(defaults, name) for name in _OF_CONTAINERS}
    # Only the watchdog is left for a limit that was requested.
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


def check_host(spec: SandboxSpec, traits: "Traits", protect: Sequence[str]) -> None:
    """Refuse a run on the bare host that requests something that the host cannot enforce.

    Raises:
        PolicyRefused: A limit, a mount, a protected path or a mode is set.
    """
    from ringfence.sandbox.enforcement import unenforceable

    found = [f"sandbox.{name}" for name in sorted(unenforceable(spec, traits.unenforced))]
    found += ["sandbox.mounts"] if spec.mounts else []
    found += ["sandbox.protect"] if protect else []
    if found:
        raise PolicyRefused(
            f"the host backend has no fence and cannot enforce {', '.join(found)}; leave it out, "
            "accept a watchdog for limits with --soft-limits, or use --sandbox bubblewrap",
            rule="host-unenforced",
        )


def check_image(spec: SandboxSpec) -> None:
    """Check that the image may be used, before a credential is leased and a record is begun.

    Raises:
        PolicyRefused: Its name is invalid, not pinned, or not allowed.
        UsageError: The backend needs an image, and none is named.
    """
    from ringfence.sandbox.policy import RULES, Surroundings
    from ringfence.sandbox.registry import traits_of

    around = Surroundings(home=Path.home(), state=state_dir())
    for rule in (rule for rule in RULES if rule.name.startswith("image-")):
        for violation in rule.violations(spec, around):
            raise PolicyRefused(f"{violation} is refused: {rule.because}", rule=rule.name)
    if spec.image is None and traits_of(spec).needs_image:
        raise UsageError(
            f"--sandbox {spec.backend} needs an image: name one with --image (or sandbox.image); `ringfence image ls` "
            "lists those that were built, `ringfence image build` builds one"
        )
