"""Which database what is to outlive its process lies in: jobs of a fleet, stories of a loop."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from ringfence.config.values import Text


def _of_postgres(url: str) -> str:
    """An address of a server that we can use, or a variable's. No complaint shows it: it may hold a password."""
    if not re.match(r"postgresql(\+psycopg)?://|\$\{", url):
        raise ValueError("this is no address of a Postgres; write postgresql://USER@HOST/NAME")
    return url


class DurableSettings(BaseModel):
    """Where work and its progress are kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["sqlite", "postgres"] = "sqlite"
    """`sqlite`: files in the state directory, for one machine. `postgres`: a server that several can reach."""
    url: Annotated[Text, AfterValidator(_of_postgres)] | None = None
    """Of the database, for `postgres`: `postgresql://…`; a password comes by `${VARIABLE}`, or from ~/.pgpass."""

    @model_validator(mode="after")
    def _url(self) -> "DurableSettings":
        if (self.type == "postgres") != (self.url is not None):
            raise ValueError("`url` goes with `type: postgres`, and only with it")
        return self
