"""What is not wrong in a crew's files, but will not work here as it stands: told before a job finds out."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ringfence.fleet.config.crew import Agent, Fleet

_SCRIPTED = "scripted:"


def doubts(fleet: Fleet, environ: Mapping[str, str]) -> Iterator[str]:
    """A line each. On a crew of several machines nothing is said of what need not be on this one.

    Args:
        fleet: The crew.
        environ: What its daemon has, or is to have.
    """
    if not fleet.agents:
        yield "there are no agents; write some under `agents:`"
    if fleet.settings.engine.type != "sqlite":
        return
    for agent in fleet.agents.values():
        yield from _of(agent)
        yield from _unset(agent, environ)


def _of(agent: Agent) -> Iterator[str]:
    workspace, model = agent.settings.workspace, agent.settings.run.model
    if workspace is not None and not workspace.is_dir():
        yield f"agents.{agent.name}.workspace: there is no directory {str(workspace)!r}; its jobs fail until there is"
    elif workspace is not None and agent.settings.sandbox.mode is None and _is_roots(workspace):
        yield (
            f"agents.{agent.name}.workspace: {str(workspace)!r} is root's, so its jobs work on private copies; "
            "`ringfence apply RUN` brings one in, or give the directory to a user by `chown -R`"
        )
    if model.startswith(_SCRIPTED) and not Path(model.removeprefix(_SCRIPTED)).is_file():
        script = model.removeprefix(_SCRIPTED)
        yield f"agents.{agent.name}.run.model: there is no file {script!r}; its jobs fail until there is"


def _unset(agent: Agent, environ: Mapping[str, str]) -> Iterator[str]:
    for name, reference in agent.settings.secrets.items():
        if reference.env is not None and not environ.get(reference.env, "").strip():
            yield (
                f"agents.{agent.name}.secrets.{name}: {reference.env} is not set; what needs it fails until the crew "
                "is started where it is"
            )


def _is_roots(directory: Path) -> bool:
    """Whether we are root, and it is not given to anybody else; then no agent may work on the files themselves."""
    return os.geteuid() == 0 and directory.stat().st_uid == 0
