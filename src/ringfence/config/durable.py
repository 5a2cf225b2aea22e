"""Settings of the database for work that outlives its process: jobs of a fleet, stories of a loop."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from ringfence.config.values import Text


def _check_postgres_url(url: str) -> str:
    """Check that an address is of Postgres or a variable. Errors do not show it, because it may contain a password."""
    if not re.match(r"postgresql(\+psycopg)?://|\$\{", url):
        raise ValueError("this is not the address of a Postgres server; write postgresql://USER@HOST/NAME")
    return url


class DurableSettings(BaseModel):
    """The database of work and its progress."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["sqlite", "postgres"] = "sqlite"
    """`sqlite`: files in the state directory, for one machine. `postgres`: a server that several machines share."""
    url: Annotated[Text, AfterValidator(_check_postgres_url)] | None = None
    """Address of the database for `postgres`: `postgresql://…`. Give a password by `${VARIABLE}` or in ~/.pgpass."""

    @model_validator(mode="after")
    def _check_url(self) -> "DurableSettings":
        if (self.type == "postgres") != (self.url is not None):
            raise ValueError("`url` goes with `type: postgres`, which requires it")
        return self
