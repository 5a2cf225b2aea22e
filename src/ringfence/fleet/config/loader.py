"""Loads a fleet: merges the raw layers of each agent, replaces variables, and validates the result once.

The layers of an agent, weakest first, are: the user's own file; the top-level sections of the outermost file, and those
of each included file down to the one that defines the agent; the agent's own settings; the overrides in the files that
include it. Variables `RINGFENCE_*` configure only single runs.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ringfence.config.document import Origin
from ringfence.config.effective import read_file, trust_command
from ringfence.config.layer import SECTIONS, Layer, Merged, document_layer, merge, only
from ringfence.config.paths import user_config_file
from ringfence.config.validation import check_combinations, combine, fitted
from ringfence.errors import ConfigurationError, PolicyRefused, RingfenceError, UsageError
from ringfence.fleet.config.checks import check_fleet
from ringfence.fleet.config.definition import Agent, Fleet
from ringfence.fleet.config.include import FleetFile, documents_of, walk_files
from ringfence.fleet.config.model import AgentSettings, FleetSettings, Hook
from ringfence.fleet.config.raw_values import prepare_values
from ringfence.fleet.schedule.zone import zone
from ringfence.fleet.tracing.setup import check_installed

_MAX_AGENTS = 1000


def load_fleet(file: Path, *, environ: Mapping[str, str]) -> Fleet:
    """Load a fleet's file and the files that it includes.

    Args:
        file: `ringfence.yaml`, `herdctl.yaml`, or another file.
        environ: The variables that the files may refer to.

    Raises:
        ConfigurationError: The files contain mistakes. The error has the position of the first one; its text names the
            others.
    """
    files = list(walk_files(file, tuple(_user_layers()), environ))
    agents = _load_agents(file, files, environ)
    merged = merge([files[0].fleet()])
    prepare_values(merged, environ, prefix="fleet.")
    settings = fitted(merged, FleetSettings, of="fleet.")
    try:
        zone(settings.timezone or "UTC")
    except UsageError as exc:
        raise merged.blame(("timezone",)).error(f"fleet.timezone: {exc}") from None
    if settings.notify:
        agents = {name: _with_notifications(agent, settings.notify, merged) for name, agent in agents.items()}
    check_fleet(settings, agents)
    notes = tuple(note for each in files for note in each.notes)
    return Fleet(settings, agents, tuple(documents_of(files)), merged, notes)


def load_trusted(file: Path, *, environ: Mapping[str, str]) -> Fleet:
    """Load a fleet in order to run it.

    Raises:
        ConfigurationError: As `load_fleet`, or a package that traces need is not installed.
        PolicyRefused: The user has not trusted the current content of a file.
    """
    fleet = load_fleet(file, environ=environ)
    untrusted = fleet.untrusted()
    if untrusted:
        more = f" and {len(untrusted) - 1} more files" if len(untrusted) > 1 else ""
        raise PolicyRefused(
            f"you have not trusted the present content of {str(untrusted[0])!r}{more}; a fleet works unattended: read "
            f"what it does, then run `{trust_command(fleet.file)}`",
            rule="trust",
        )
    check_installed(fleet.settings.traces)
    return fleet


def _load_agents(file: Path, files: list[FleetFile], environ: Mapping[str, str]) -> dict[str, Agent]:
    agents: dict[str, Agent] = {}
    origins: dict[str, Origin] = {}
    errors: list[RingfenceError] = []
    for each in files:
        for own_name, (layer, origin) in each.agents().items():
            name = ".".join((*each.prefix, own_name))
            if name in origins:
                other = str(origins[name].file)
                raise origin.error(
                    f"there are two agents {name!r}; the other is in {other!r}; give one of the fleets another name "
                    "where it is included"
                )
            origins[name] = origin
            if len(origins) > _MAX_AGENTS:
                raise ConfigurationError(f"there are more than {_MAX_AGENTS} agents", file=file)
            layers = [*each.below, layer, *each.above, *each.overrides.get(own_name, ())]
            try:
                agents[name] = _load_agent(name, layers, origin, environ)
            except RingfenceError as exc:
                errors += exc.gathered or (exc,)
    if errors:
        raise combine(errors)
    return agents


def _load_agent(name: str, layers: list[Layer], origin: Origin, environ: Mapping[str, str]) -> Agent:
    assert origin.file is not None
    merged = merge(layers)
    prepare_values(merged, environ, prefix=f"agents.{name}.")
    if merged.values.get("workspace") is None and merged.values.get("repository") is None:
        merged.values["workspace"] = os.path.normpath(origin.file.parent.absolute())
    _qualify_agents(merged, name)
    settings = fitted(merged, AgentSettings, of=f"agents.{name}.", place=origin)
    check_combinations(settings, merged)
    return Agent(name, settings, merged, origin.file.parent)


def _with_notifications(agent: Agent, notify: tuple[Hook, ...], fleet: Merged) -> Agent:
    """Return an agent with the fleet's hooks. They are stored with each job and so reach workers on all machines."""
    hooks = agent.settings.hooks
    own = len(hooks.get("on_inbox", ()))
    for path in fleet.variables:
        if path[0] == "notify" and len(path) > 1:
            agent.merged.variables.add(("hooks", "on_inbox", own + int(path[1]), *path[2:]))
    for path, source in fleet.sources.items():
        if path[0] == "notify":
            below = (own + int(path[1]), *path[2:]) if len(path) > 1 else ()
            agent.merged.sources.setdefault(("hooks", "on_inbox", *below), source)
    hooks = {**hooks, "on_inbox": (*hooks.get("on_inbox", ()), *notify)}
    return replace(agent, settings=agent.settings.model_copy(update={"hooks": hooks}))


def _qualify_agents(merged: Merged, name: str) -> None:
    """Qualify the agent names in triggers: a name without a fleet's name is of an agent of the same fleet."""
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
