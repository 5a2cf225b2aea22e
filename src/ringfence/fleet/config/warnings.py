"""Finds what will not work on this machine in a fleet whose files are valid."""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from ringfence.config.document import DEFAULT
from ringfence.config.old_names import old_names_in
from ringfence.errors import ConfigurationError, PolicyRefused
from ringfence.fleet.config.definition import Agent, Fleet
from ringfence.fleet.config.model import BudgetSettings, DirectoryTrigger, FleetSettings
from ringfence.job.resolution import DEFAULT_MODELS, prices_of
from ringfence.model.registry import read_model
from ringfence.runtime.limits import check_price_known

_SCRIPTED = "scripted:"
_Warnings = Iterator[tuple[str, str]]
"""An agent's key, and the warning about it."""


def find_warnings(fleet: Fleet, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each warning, with the position of the value. Agents that share the value share the warning.

    Args:
        fleet: The fleet. If it has several machines, nothing is expected to be on this one.
        environ: The environment of the fleet's daemon.
    """
    for document in fleet.documents:
        yield from old_names_in(document)
    if not fleet.agents:
        yield "there are no agents; write some under `agents:`"
    is_local = fleet.settings.engine.type == "sqlite"
    seen = set()
    yield from _check_reservations(fleet)
    for agent in fleet.agents.values():
        local = (
            chain(_check_files(agent), _check_variables(agent, environ), _check_placement(agent))
            if is_local
            else ()
        )
        for key, warning in chain(local, _check_prices(agent, fleet.settings)):
            origin = agent.origin(key)
            if (origin, warning) not in seen:
                position = f"{origin}: " if origin.is_file else ""
                yield f"{position}agents.{agent.name}.{key}: {warning}"
            if origin.is_file:
                seen.add((origin, warning))


def _check_reservations(fleet: Fleet) -> Iterator[str]:
    """Warn about budgets of a day that one job reserves alone, although several jobs could run at the same time."""
    agents = list(fleet.agents.values())
    if len(agents) > 1 and fleet.settings.concurrency > 1:
        yield from _find_small_budgets("fleet.budget", fleet.settings.budget, agents)
    for agent in agents:
        if agent.settings.concurrency > 1:
            yield from _find_small_budgets(f"agents.{agent.name}.budget", agent.settings.budget, [agent])


def _find_small_budgets(key: str, budget: BudgetSettings, agents: Sequence[Agent]) -> Iterator[str]:
    for unit in ("tokens", "cost_usd"):
        most = getattr(budget, unit)
        limits = {each.name: getattr(each.settings.limits, unit) for each in agents}
        large = [
            name for name, limit in limits.items() if most is not None and (limit is None or limit > most)
        ]
        if large:
            others = f" and {len(large) - 1} more" if len(large) > 1 else ""
            yield (
                f"{key}.{unit}: `limits.{unit}` lets one job of agent {large[0]!r}{others} reserve all of it, so that "
                f"no other job runs meanwhile; set `limits: {{{unit}: ...}}` well below {most:,.10g}"
            )


def _check_files(agent: Agent) -> _Warnings:
    workspace, model = agent.settings.workspace, agent.settings.run.model
    if workspace is not None and not workspace.is_dir():
        yield "workspace", f"there is no directory {str(workspace)!r}; its jobs fail until there is"
    elif workspace is not None and agent.settings.sandbox.mode is None and _belongs_to_root(workspace):
        copies = f"{str(workspace)!r} belongs to root, so its jobs work on private copies"
        advice = "`ringfence apply RUN` applies one; with `sandbox: {mode: bind}` they work on the files themselves"
        yield "workspace", f"{copies}; {advice}"
    script = model.removeprefix(_SCRIPTED)
    if model.startswith(_SCRIPTED) and not Path(script).is_file():
        yield "run.model", f"there is no file {script!r}; its jobs fail until there is"
    for name, trigger in agent.settings.triggers.items():
        if isinstance(trigger, DirectoryTrigger) and not trigger.path.is_dir():
            path = str(trigger.path)
            yield f"triggers.{name}.path", f"there is no directory {path!r}; no task is read until there is"


def _check_variables(agent: Agent, environ: Mapping[str, str]) -> _Warnings:
    for name, reference in agent.settings.secrets.items():
        if reference.env is not None and not environ.get(reference.env, "").strip():
            yield f"secrets.{name}", f"{reference.env} is not set; set it where the fleet is started"


def _check_placement(agent: Agent) -> _Warnings:
    placement = agent.settings.placement
    if placement not in (None, socket.gethostname()):
        workers = "the workers of a fleet on SQLite are on this machine and have no labels"
        advice = f"its jobs wait; leave it out, write {socket.gethostname()!r}, or set `fleet.engine`"
        yield "placement", f"no worker has the label {placement!r}: {workers}; {advice}"


def _check_prices(agent: Agent, fleet: FleetSettings) -> _Warnings:
    """Warn about a limit in dollars for a model without a price. A model that cannot be read is reported elsewhere."""
    settings = agent.settings
    limits = {
        "limits.cost_usd": settings.limits.cost_usd,
        "budget.cost_usd": settings.budget.cost_usd,
        "fleet.budget.cost_usd": fleet.budget.cost_usd,
    }
    limit = next((key for key, cost_usd in limits.items() if cost_usd is not None), None)
    if limit is None:
        return
    is_named, model = agent.origin("run.model") != DEFAULT, settings.run.model
    try:
        name, prices = read_model(model if is_named else DEFAULT_MODELS.get(settings.run.runtime, model))
        check_price_known(name, {**prices, **prices_of(settings)}, runtime=settings.run.runtime)
    except PolicyRefused as exc:
        yield "run.model" if is_named else "run.runtime", f"its jobs are refused, because of `{limit}`: {exc}"
    except ConfigurationError:
        return


def _belongs_to_root(directory: Path) -> bool:
    """Whether this process runs as root and root owns the directory, which makes a private copy the default mode."""
    return os.geteuid() == 0 and directory.stat().st_uid == 0
