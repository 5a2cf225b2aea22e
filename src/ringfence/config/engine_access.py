"""What a sandbox may do with the container engine of the host's side: which containers, and which acts."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

EngineAct = Literal["start", "stop", "restart", "exec", "exec_user"]
"""`exec_user`: a command as another user than the container's own; implies `exec`."""

SOCKET_INSIDE = "/tmp/.ringfence/engine.sock"  # noqa: S108 -- inside, where /tmp is the sandbox's own
"""Where `DOCKER_HOST` points to inside."""

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}(=[^\x00-\x1f\x7f]{0,256})?")


def check_label(value: str) -> str:
    """See that it is a label as engines have them: `key` or `key=value`.

    Raises:
        ValueError: It is none, or one of ringfence's own.
    """
    if not _LABEL.fullmatch(value):
        raise ValueError(f"{value!r} is not a label; write KEY or KEY=VALUE")
    if value.startswith("ringfence."):
        raise ValueError(f"{value!r} is a label of ringfence's own containers, which nobody inside may touch")
    return value


class EngineAccess(BaseModel):
    """Containers with `label` can be looked at; `allow` names what else may be done with them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: Annotated[str, AfterValidator(check_label)]
    allow: tuple[EngineAct, ...] = ()
    socket: Path | None = None
    """Of the engine. None: DOCKER_HOST, else the usual places of Docker and Podman."""

    def is_on(self, labels: dict[str, str]) -> bool:
        """Whether a container with these labels is one of them."""
        key, equals, value = self.label.partition("=")
        return key in labels and (not equals or labels[key] == value)
