"""A crew whose agent works until it is let go: each fault happens while it does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fleet.chaos import accounts
from tests.fleet.chaos.machine import Machine
from tests.fleet.fleet_files import FleetFiles

_HOLD = "echo begun >>/gate/begun; until [ -e /gate/go ]; do sleep 0.1; done; echo through"


class Holding:
    """One crew.

    Args:
        crew: Its files.
        fleet: What stands below `fleet:` besides.
        sandbox: What stands below each agent's `sandbox:` besides.
        others: Agents besides `a`, and what stands below each that does not below that one.
        agent: What stands below each agent besides.
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
        self.gate.chmod(0o777)  # whoever the agent is, inside
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
        """Hold agents again that were let go, for another test on the same crew; all of its workers are there."""
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
        """Wait until the agent's command was begun so often."""
        file = self.gate / "begun"
        self.crew.waits(
            lambda: len(file.read_text().split()) if file.exists() else 0, lambda count: count >= times
        )

    def begin(self, agent: str = "a") -> str:
        """A new job, at work."""
        job = self.crew.trigger(agent)
        self.begun()
        return job

    def let_go(self) -> None:
        """Let the agent come to its end."""
        (self.gate / "go").touch()

    def worker(self) -> int:
        """The worker that has a sandbox."""
        (found,) = [pid for pid in self.machine.workers() if self.machine.fences(pid)]
        return found

    @property
    def url(self) -> str:
        """Of its database, where no other was named."""
        return f"sqlite:///{self.crew.state}/fleet/fleet.db"

    def ends(self, job: str, url: str = "") -> list[str | None]:
        """How each attempt at a job ended, in order, once the job has."""
        self.crew.ends(job)
        return [row["state"] for row in accounts.read(url or self.url).of(job)]

    def runs(self, job: str, url: str = "") -> list[str]:
        """The run of each attempt at a job, in order."""
        return [row["run_id"] for row in accounts.read(url or self.url).of(job)]
