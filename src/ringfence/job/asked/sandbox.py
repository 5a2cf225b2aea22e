"""The sandbox that is asked for, by the settings."""

from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.config.model import Settings
    from ringfence.sandbox import SandboxSpec
    from ringfence.sandbox.pool.pool import PoolSize


def spec_of(effective: "Effective", workspace: Path | None) -> "SandboxSpec":
    """The sandbox that the configuration asks for.

    Raises:
        ConfigurationError, UsageError: It asks for what no backend of this version has.
    """
    from ringfence.config.egress import Egress
    from ringfence.config.engine_access import EngineAccess
    from ringfence.sandbox import Mount, SandboxSpec
    from ringfence.sandbox.registry import backend_names

    backend = effective.settings.sandbox.backend
    if backend not in ("auto", *backend_names()):
        known = ", ".join(("auto", *backend_names()))
        raise effective.origins["sandbox.backend"].error(
            f"unknown sandbox backend {backend!r}; known: {known}"
        )
    settings = effective.settings
    arguments = settings.sandbox.spec_arguments()
    arguments.pop("protect", None)  # of the workspace, not of the sandbox: `RunRequest.protect`
    arguments.pop("fallback", None)  # of the choice of a fence: `fallen_back`
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


def check_image(spec: "SandboxSpec") -> None:
    """See that the image is one that may be used, before a credential is looked for and a record begun.

    Raises:
        PolicyRefused: Its name is none, or not pinned, or not allowed.
        UsageError: The backend takes an image, and none is named.
    """
    from ringfence.config.paths import state_dir
    from ringfence.errors import PolicyRefused
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


def pool_of(settings: "Settings") -> "PoolSize | None":
    """How much is kept warm; None if nothing is."""
    pool = settings.pool
    if not pool.size:
        return None
    from ringfence.sandbox.pool.pool import PoolSize

    return PoolSize(pool.size, pool.max_age)


def secrets_of(settings: "Settings") -> tuple[str, ...]:
    """Values that no record may hold: the caller's own, and those given to the sandbox against all advice."""
    import os

    from ringfence.secret import environment_secrets, registered_secrets

    named = (os.environ.get(reference.env or "", "") for reference in settings.secrets.values())
    return (
        *environment_secrets({**os.environ, **settings.sandbox.env}),
        *(value for value in named if value),
        *registered_secrets(),
    )
