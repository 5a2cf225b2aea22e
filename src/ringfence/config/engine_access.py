"""The access of a sandbox to the host's container engine: the containers, and the actions on them."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

EngineAct = Literal["start", "stop", "restart", "exec", "exec_user"]
"""`exec_user` runs a command as a user other than the container's own; it implies `exec`."""

SOCKET_INSIDE = "/tmp/.ringfence/engine.sock"  # noqa: S108 -- the sandbox has its own /tmp
"""The socket to which `DOCKER_HOST` points in the sandbox."""

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}(=[^\x00-\x1f\x7f]{0,256})?")


def check_label(value: str) -> str:
    """Check that the text is a label of a container engine: `key` or `key=value`.

    Raises:
        ValueError: The text is not a label, or the label is reserved for Ringfence.
    """
    if not _LABEL.fullmatch(value):
        raise ValueError(f"{value!r} is not a label; write KEY or KEY=VALUE")
    if value.startswith("ringfence."):
        raise ValueError(f"{value!r} is a label of ringfence's own containers, which no sandbox may access")
    return value


class EngineAccess(BaseModel):
    """Access to containers with `label`: they can be inspected, and `allow` names further actions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: Annotated[str, AfterValidator(check_label)]
    allow: tuple[EngineAct, ...] = ()
    socket: Path | None = None
    """The engine's socket. None: DOCKER_HOST, else the usual sockets of Docker and Podman."""

    def is_on(self, labels: dict[str, str]) -> bool:
        """Whether the access includes a container with these labels."""
        key, equals, value = self.label.partition("=")
        return key in labels and (not equals or labels[key] == value)
