"""What is not wrong in a fleet's files, but will not work here as it stands: told before a job finds out."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ringfence.config.document import DEFAULT
from ringfence.config.old_names import old_names_in
from ringfence.errors import ConfigurationError, PolicyRefused
from ringfence.fleet.config.definition import Agent, Fleet
from ringfence.fleet.config.model import DirectoryTrigger, FleetSettings
from ringfence.job.resolution import DEFAULT_MODELS, prices_of
from ringfence.model.registry import read_model
from ringfence.runtime.limits import check_price_known

_SCRIPTED = "scripted:"


def doubts(fleet: Fleet, environ: Mapping[str, str]) -> Iterator[str]:
    """A line each, with the place that says it; what a file says once for all agents is told once.

    On a fleet of several machines nothing is said of what need not be on this one.

    Args:
        fleet: The fleet.
        environ: What its daemon has, or is to have.
    """
    for document in fleet.documents:
        yield from old_names_in(document)
    if not fleet.agents:
        yield "there are no agents; write some under `agents:`"
    is_here = fleet.settings.engine.type == "sqlite"
    told = set()
    for agent in fleet.agents.values():
        here = (*_of(agent), *_of_triggers(agent), *_unset(agent, environ)) if is_here else ()
        for key, doubt in (*here, *_unpriced(agent, fleet.settings)):
            origin = agent.origin(key)
            if not origin.is_file:
                yield f"agents.{agent.name}.{key}: {doubt}"
            elif (origin, doubt) not in told:
                told.add((origin, doubt))
                yield f"{origin}: agents.{agent.name}.{key}: {doubt}"


_Doubts = Iterator[tuple[str, str]]
"""An agent's key, and what is to be said of it."""


def _of(agent: Agent) -> _Doubts:
    workspace, model = agent.settings.workspace, agent.settings.run.model
    if workspace is not None and not workspace.is_dir():
        yield "workspace", f"there is no directory {str(workspace)!r}; its jobs fail until there is"
    elif workspace is not None and agent.settings.sandbox.mode is None and _is_roots(workspace):
        copies = f"{str(workspace)!r} is root's, so its jobs work on private copies"
        way_out = "`ringfence apply RUN` brings one in; `sandbox: {mode: bind}` has them work on the files themselves"
        yield "workspace", f"{copies}; {way_out}"
    if model.startswith(_SCRIPTED) and not Path(model.removeprefix(_SCRIPTED)).is_file():
        script = model.removeprefix(_SCRIPTED)
        yield "run.model", f"there is no file {script!r}; its jobs fail until there is"


def _of_triggers(agent: Agent) -> _Doubts:
    for name, trigger in agent.settings.triggers.items():
        if isinstance(trigger, DirectoryTrigger) and not trigger.path.is_dir():
            path = str(trigger.path)
            yield f"triggers.{name}.path", f"there is no directory {path!r}; no task is taken until there is"


def _unset(agent: Agent, environ: Mapping[str, str]) -> _Doubts:
    for name, reference in agent.settings.secrets.items():
        if reference.env is not None and not environ.get(reference.env, "").strip():
            unset = f"{reference.env} is not set; what needs it fails until the fleet is started where it is"
            yield f"secrets.{name}", unset


def _unpriced(agent: Agent, fleet: FleetSettings) -> _Doubts:
    """A bound on dollars that cannot be kept. A script that cannot be read has a doubt of its own, or is elsewhere."""
    settings = agent.settings
    bounds = {
        "limits.cost_usd": settings.limits.cost_usd,
        "budget.cost_usd": settings.budget.cost_usd,
        "fleet.budget.cost_usd": fleet.budget.cost_usd,
    }
    bound = next((key for key, most in bounds.items() if most is not None), None)
    if bound is None:
        return
    is_named, model = agent.origin("run.model") != DEFAULT, settings.run.model
    try:
        name, prices = read_model(model if is_named else DEFAULT_MODELS.get(settings.run.runtime, model))
        check_price_known(name, {**prices, **prices_of(settings)}, runtime=settings.run.runtime)
    except PolicyRefused as exc:
        yield "run.model" if is_named else "run.runtime", f"its jobs are refused, because of `{bound}`: {exc}"
    except ConfigurationError:
        return


def _is_roots(directory: Path) -> bool:
    """Whether it is root's own, as we are: then an agent works on the files themselves only where that is asked for."""
    return os.geteuid() == 0 and directory.stat().st_uid == 0
