"""What a recorded run was asked, as a request again."""

from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.errors import ConfigurationError, PolicyRefused, RecordError
from ringfence.frozen import frozen

if TYPE_CHECKING:
    from ringfence.config.model import Settings
    from ringfence.job.model_access import ModelAccess
    from ringfence.job.request import AgentRequest
    from ringfence.sandbox import SandboxSpec


@frozen
class RecordedRequest:
    """What a replay needs of a run, besides its record."""

    spec: "SandboxSpec"
    agent: "AgentRequest | None"
    """None: it was of one command."""
    access: "ModelAccess | None"
    """What those inside could ask of models; without credentials."""
    wall_clock_s: float | None
    """How long it could take."""


def recorded_request(run: Path) -> RecordedRequest:
    """What the run in `run` was asked, from its `job.created`.

    Raises:
        RecordError: The record does not say, or holds settings this version does not know.
        PolicyRefused: It was run on the bare host.
    """
    from pydantic import ValidationError

    from ringfence.config.model import Settings
    from ringfence.job.asked.agent import request_of
    from ringfence.job.asked.sandbox import spec_from
    from ringfence.job.continuing import creation_of

    created = creation_of(run)
    if created is not None and created.runtime.endswith(("-cli", "-sdk")):
        raise RecordError(
            f"run {run.name!r} was of {created.runtime!r}, a program that nothing makes do the same twice; "
            f"`ringfence audit show {run.name[-8:]}` shows all that it did"
        )
    if created is None or created.runtime not in ("api", "exec"):
        raise RecordError(
            f"run {run.name!r} is not an agent's run, nor one of `ringfence exec`; "
            f"`ringfence audit show {run.name[-8:]}` shows it"
        )
    try:
        settings = Settings.model_validate(created.configuration)
        spec = spec_from(settings, Path(created.workspace))
    except (ValidationError, ConfigurationError) as exc:
        raise RecordError(f"the configuration of run {run.name!r} does not fit this version: {exc}") from exc
    if spec.backend == "host":
        raise PolicyRefused(
            f"run {run.name!r} was made without a fence, and a replay would execute its commands on this machine "
            "again; run the task anew with --sandbox bubblewrap to have one that can be replayed",
            rule="replay-host",
        )
    return RecordedRequest(
        spec.model_copy(update={"soft_limits": True}),
        request_of(created.prompt, settings) if created.runtime == "api" else None,
        _access(settings, spec),
        settings.limits.wall_clock,
    )


def _access(settings: "Settings", spec: "SandboxSpec") -> "ModelAccess | None":
    """As the run had it. A script that is gone by now took its price along, and the limit on cost that needs it."""
    from ringfence.job.asked.agent import access_of
    from ringfence.job.asked.lending import Lent
    from ringfence.job.model_access import ModelAccess

    if not spec.egress.wants_model:
        return None
    try:
        return access_of(settings, spec, Lent())
    except ConfigurationError:
        return ModelAccess(settings.run.model, tokens=settings.limits.tokens)
