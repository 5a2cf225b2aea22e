"""What a run needs so that its agent can be a client: the model's gateway, the program, the right credential."""

from pathlib import Path

from ringfence.config.egress import EgressRule
from ringfence.errors import ConfigurationError
from ringfence.runtime.client.base import Program
from ringfence.runtime.options import Options
from ringfence.sandbox import Mount, SandboxSpec
from ringfence.secret import Provider

_OPENAI = frozenset({"codex-cli"})
_INSIDE = "/opt/ringfence/bin"


def provider_of(runtime: str) -> Provider:
    """Whose models a runtime asks."""
    return "openai" if runtime in _OPENAI else "anthropic"


def with_model_granted(spec: SandboxSpec) -> SandboxSpec:
    """The same, with the model's API granted: a client inside has no other way to think."""
    if spec.egress.wants_model:
        return spec
    rules = (*spec.egress.allow, EgressRule(preset="model"))
    return spec.model_copy(update={"egress": spec.egress.model_copy(update={"allow": rules})})


async def found_program(runtime: str, options: Options) -> Program:
    """The client's program, and what shows it inside.

    Raises:
        ConfigurationError: There is none, or of a version that was never tried.
    """
    path: Path | None = options.cli_path
    if path is None:
        raise ConfigurationError(
            f"the program of the runtime {runtime!r} is not known; name it by --cli-path"
        )
    inside = f"{_INSIDE}/{path.name}"
    return Program(inside, "", (Mount(source=path, target=inside),))
