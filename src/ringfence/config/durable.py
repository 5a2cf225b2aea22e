"""Which database what is to outlive its process lies in: jobs of a crew, stories of a loop."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from ringfence.config.values import Text


class DurableSettings(BaseModel):
    """Where work and its progress are kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["sqlite", "postgres"] = "sqlite"
    """`sqlite`: files in the state directory, for one machine. `postgres`: a server that several can reach."""
    url: Text | None = None
    """Of the database, for `postgres`: `postgresql://…`; a password comes by `${VARIABLE}`, or from ~/.pgpass."""

    @model_validator(mode="after")
    def _url(self) -> "DurableSettings":
        if (self.type == "postgres") != (self.url is not None):
            raise ValueError("`url` goes with `type: postgres`, and only with it")
        return self
