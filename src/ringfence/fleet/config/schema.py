"""Generates the JSON Schema of `ringfence.yaml` with the settings of fleets, for editors and other programs."""

from typing import Annotated, Any

from pydantic import Field, StringConstraints, create_model

from ringfence.config.model import Settings
from ringfence.config.template import describe
from ringfence.fleet.config.model import NAME, AgentSettings, FleetSettings, IncludeSettings

_Name = Annotated[str, StringConstraints(pattern=f"^{NAME.pattern}$")]


def fleet_schema() -> dict[str, Any]:
    """Return the schema of a run's configuration with `fleet:`, `agents:` and `include:`."""
    for model in (Settings, FleetSettings, AgentSettings, IncludeSettings):
        describe(model)
    file = create_model(
        "File",
        __base__=Settings,
        fleet=(FleetSettings | None, Field(None, description="The fleet as a whole.")),
        agents=(dict[_Name, AgentSettings | None], Field({}, description="The fleet's agents, by name.")),
        include=(list[IncludeSettings], Field([], description="Other fleets, whose agents join this one.")),
    )
    schema = file.model_json_schema(mode="validation")
    _close(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "ringfence.yaml",
        "description": "Configuration of ringfence: of single runs, and of a fleet.",
    }


def _close(schema: Any) -> None:
    """Refuse names that match no pattern, as the loader does."""
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema.setdefault("additionalProperties", False)
        for below in schema.values():
            _close(below)
    elif isinstance(schema, list):
        for below in schema:
            _close(below)
