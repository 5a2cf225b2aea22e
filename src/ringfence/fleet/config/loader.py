"""From files to agents: layers merged raw, then interpolated, then checked once, with the place of each complaint.

What holds for an agent, the weakest first: the user's own file; the sections at the top of the fleet's file, and of each
included file down to the one that names the agent; what stands under its name; the overrides of the files that include
it. Variables `RINGFENCE_*` do not count: they are meant for single runs.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ringfence.config.document import Origin
from ringfence.config.effective import read_file
from ringfence.config.layer import SECTIONS, Layer, Merged, document_layer, merge, only
from ringfence.config.paths import user_config_file
from ringfence.config.validation import check_combinations, fitted
from ringfence.errors import ConfigurationError, PolicyRefused, RingfenceError, UsageError
from ringfence.fleet.config.checks import check_fleet
from ringfence.fleet.config.definition import Agent, Fleet
from ringfence.fleet.config.include import FleetFile, first_file, walk
from ringfence.fleet.config.interpolation import interpolate
from ringfence.fleet.config.model import AgentSettings, FleetSettings
from ringfence.fleet.config.plain_secrets import refuse_plain
from ringfence.fleet.config.relative_paths import resolve_paths
from ringfence.fleet.schedule.zone import zone
from ringfence.fleet.tracing.setup import check_installed

_MOST_AGENTS = 1000


def load_fleet(file: Path, *, environ: Mapping[str, str]) -> Fleet:
    """Read a fleet's file and what it includes.

    Args:
        file: `ringfence.yaml`, or another.
        environ: Variables that the files may name.

    Raises:
        ConfigurationError: With file, line and column.
    """
    files = list(walk(first_file(file, tuple(_user_layers())), environ))
    agents: dict[str, Agent] = {}
    for each in files:
        for agent in _agents(each, environ):
            if agent.name in agents:
                raise _twice(each, agent, agents[agent.name])
            agents[agent.name] = agent
            if len(agents) > _MOST_AGENTS:
                raise ConfigurationError(f"there are more than {_MOST_AGENTS} agents", file=file)
    merged = merge([files[0].fleet()])
    refuse_plain(merged, of="fleet.")
    interpolate(merged, environ, of="fleet.")
    settings = fitted(merged, FleetSettings, of="fleet.")
    _check_zone(settings, merged)
    check_fleet(settings, agents)
    documents = {doc.file: doc for each in files for doc in (each.document, *each.documents)}
    notes = tuple(note for each in files for note in each.notes)
    led_from = {doc.file: each.document.file for each in files for doc in each.documents}
    return Fleet(settings, agents, tuple(documents.values()), merged, notes, led_from)


def _check_zone(settings: FleetSettings, merged: Merged) -> None:
    try:
        zone(settings.timezone or "UTC")
    except UsageError as exc:
        raise merged.blame(("timezone",)).error(f"fleet.timezone: {exc}") from None


def _twice(file: FleetFile, agent: Agent, other: Agent) -> RingfenceError:
    place = file.agents()[agent.name.rpartition(".")[2]][1]
    return place.error(
        f"there are two agents {agent.name!r}; the other is of {str(other.directory)!r}; give one of the fleets "
        "another name where it is included"
    )


def load_trusted(file: Path, *, environ: Mapping[str, str]) -> Fleet:
    """As `load_fleet`, for a fleet that is to work.

    Raises:
        ConfigurationError: As `load_fleet`.
        PolicyRefused: The user has not trusted a file as it is now.
    """
    fleet = load_fleet(file, environ=environ)
    untrusted = fleet.untrusted()
    if untrusted:
        commands = " && ".join(fleet.trust_commands())
        raise PolicyRefused(
            f"you have not trusted {str(untrusted[0])!r} as it is now; a fleet works unattended: read it, then "
            f"run `{commands}`",
            rule="trust",
        )
    check_installed(fleet.settings.traces)
    return fleet


def _agents(file: FleetFile, environ: Mapping[str, str]) -> Iterator[Agent]:
    for name, (said, place) in file.agents().items():
        layers = [*file.below, said, *file.above, *file.overrides.get(name, ())]
        yield _agent(".".join((*file.prefix, name)), layers, place, environ)


def _agent(name: str, layers: list[Layer], place: Origin, environ: Mapping[str, str]) -> Agent:
    merged = merge(layers)
    refuse_plain(merged, of=f"agents.{name}.")
    interpolate(merged, environ, of=f"agents.{name}.")
    assert place.file is not None
    resolve_paths(merged, place.file)
    _qualify(merged, name)
    settings = fitted(merged, AgentSettings, of=f"agents.{name}.", place=place)
    check_combinations(settings, merged)
    return Agent(name, settings, merged, place.file.parent)


def _qualify(merged: Merged, name: str) -> None:
    """An agent that another names is one of the same fleet, unless its name says which."""
    prefix = name.rpartition(".")[0]
    triggers = merged.values.get("triggers")
    for trigger in triggers.values() if isinstance(triggers, dict) else ():
        other = trigger.get("agent") if isinstance(trigger, dict) else None
        if isinstance(other, str) and prefix and "." not in other:
            trigger["agent"] = f"{prefix}.{other}"


def _user_layers() -> Iterator[Layer]:
    file = user_config_file()
    if file.exists():
        yield only(document_layer(read_file(file, "user", None).document, "user"), SECTIONS)
