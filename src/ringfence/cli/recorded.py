"""What a recorded run was asked, as a request again."""

from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.errors import ConfigurationError, PolicyRefused, RecordError

if TYPE_CHECKING:
    from ringfence.job.request import AgentRequest
    from ringfence.sandbox import SandboxSpec


def recorded_request(run: Path) -> "tuple[SandboxSpec, AgentRequest]":
    """The spec and the agent's request of the run in `run`, from its `job.created`.

    Raises:
        RecordError: The record does not say, or holds settings this version does not know.
        PolicyRefused: It was run on the bare host.
    """
    from pydantic import ValidationError

    from ringfence.cli.agent import agent_request
    from ringfence.cli.settings import spec_from
    from ringfence.config.model import Settings
    from ringfence.job.continuing import creation_of

    created = creation_of(run)
    if created is None or created.runtime != "api":
        raise RecordError(
            f"run {run.name!r} is not an agent's run; `ringfence audit show {run.name[-8:]}` shows it"
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
    return spec.model_copy(update={"soft_limits": True}), agent_request(created.prompt, settings)
