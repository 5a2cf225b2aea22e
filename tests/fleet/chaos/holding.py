"""A fleet whose agent works until the test releases it, so that each fault occurs while a job runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fleet.chaos import accounts
from tests.fleet.chaos.machine import Machine
from tests.fleet.fleet_files import FleetFiles

_HOLD = "echo begun >>/gate/begun; until [ -e /gate/go ]; do sleep 0.1; done; echo through"


class Holding:
    """One fleet.

    Args:
        crew: The fleet's files.
        fleet: Further keys below `fleet:`.
        sandbox: Further keys below each agent's `sandbox:`.
        others: Agents besides `a`, each with the keys that `a` does not have.
        agent: Further keys below each agent.
    """

    def __init__(
        self,
        crew: FleetFiles,
        fleet: Mapping[str, Any] | None = None,
        *,
        sandbox: Mapping[str, Any] | None = None,
        others: Mapping[str, Mapping[str, Any]] | None = None,
        **agent: Any,
    ) -> None:
        self.crew = crew
        self.machine = Machine(Path(crew.environment["XDG_STATE_HOME"]))
        self.gate = crew.home / "gate"
        self.gate.mkdir()
        self.gate.chmod(0o777)  # the agent may be any user inside the sandbox
        settings = {"workers": 2, "drain": "1s", **(fleet or {})}
        self._workers = settings["workers"]
        holds = {"text": "I wait.", "tools": [{"run": _HOLD}]}
        model = crew.script("holds", holds, {"text": "done"})
        common = {"prompt": "wait", "workspace": ".", "run": {"model": model}}
        gate = {"source": str(self.gate), "target": "/gate", "read_only": False}
        kept = {"mode": "clone", "backend": "bubblewrap", "mounts": [gate], **(sandbox or {})}
        retry = {"attempts": 3, "backoff": "1ms"}
        each = {**common, "sandbox": kept, "retry": retry, **agent}
        named = {"a": {}, **(others or {})}
        crew.write(fleet=settings, agents={name: {**each, **more} for name, more in named.items()})

    def repeat_request(self) -> None:
        """Make agents wait again for another test on the same fleet; return once all of its workers are there."""
        for file in self.gate.iterdir():
            file.unlink()
        self._all_workers()

    def up(self) -> None:
        """Start the daemon, and wait for all of its workers."""
        self.crew.up()
        self._all_workers()

    def _all_workers(self) -> None:
        self.crew.waits(lambda: self.crew.status()["workers"], lambda found: len(found) == self._workers)

    def begun(self, times: int = 1) -> None:
        """Wait until the agent's command has started so many times."""
        file = self.gate / "begun"
        self.crew.waits(
            lambda: len(file.read_text().split()) if file.exists() else 0, lambda count: count >= times
        )

    def begin(self, agent: str = "a") -> str:
        """Create a job, and wait until it works; return its id."""
        job = self.crew.trigger(agent)
        self.begun()
        return job

    def let_go(self) -> None:
        """Let the agent finish."""
        (self.gate / "go").touch()

    def worker(self) -> int:
        """Return the process id of the worker that has a sandbox."""
        (found,) = [pid for pid in self.machine.workers() if self.machine.fences(pid)]
        return found

    @property
    def url(self) -> str:
        """The URL of the fleet's own database, used unless another one was named."""
        return f"sqlite:///{self.crew.state}/fleet/fleet.db"

    def ends(self, job: str, url: str = "") -> list[str | None]:
        """Wait for the end of a job; return how each of its attempts ended, in order."""
        self.crew.ends(job)
        return [row["state"] for row in accounts.read(url or self.url).of(job)]

    def runs(self, job: str, url: str = "") -> list[str]:
        """Return the run of each attempt at a job, in order."""
        return [row["run_id"] for row in accounts.read(url or self.url).of(job)]
