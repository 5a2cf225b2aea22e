"""A fleet as its user has it: files, a state directory, and a daemon that is controlled by the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import forked

from ringfence.errors import RingfenceError
from ringfence.fleet.client import FleetClient

COMMAND = [sys.executable, "-c", "from ringfence.cli import main; main()"]
PATIENCE_S = 90.0


class StartedCommand(subprocess.Popen[str]):
    """A command that runs beside a test. One that a failed test leaves is killed, since nothing else would end it."""

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, error, trace)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Ended:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The command's JSON output."""
        return json.loads(self.out)


@dataclass
class FleetFiles:
    """One fleet.

    Args:
        home: The directory of the fleet; a short path, since it contains a socket.
    """

    home: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.project = self.home / "p"
        self.project.mkdir(parents=True)
        self.state = self.home / "s" / "ringfence"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RINGFENCE_")}
        self.environment = {**kept, **self.environment, "XDG_STATE_HOME": str(self.home / "s")}
        self.environment |= {
            "XDG_CONFIG_HOME": str(self.home / "c"),
            "XDG_CACHE_HOME": str(self.home / "k"),
            "TERM": "dumb",
        }

    @property
    def file(self) -> Path:
        """The fleet's configuration file."""
        return self.project / "ringfence.yaml"

    @property
    def log(self) -> str:
        """The daemon's log."""
        return (self.state / "fleet" / "daemon.log").read_text()

    def script(self, name: str, *turns: dict[str, Any]) -> str:
        """Write a script for the scripted model; return the model's name in configurations."""
        file = self.home / f"{name}.yaml"
        file.write_text(json.dumps({"price": {"input": 1, "output": 1}, "turns": turns}))
        return f"scripted:{file}"

    def write(self, **configuration: Any) -> None:
        """Write the configuration, and trust it."""
        self.file.write_text(json.dumps(configuration))
        self.does("config", "trust", "--yes")

    def run(self, *words: str | Path, **options: Any) -> Ended:
        """Run a command to its end."""
        done = forked.run(
            [*COMMAND, *map(str, words)],
            **{"cwd": self.project, "env": self.environment, "stdin": subprocess.DEVNULL, **options},
            timeout=PATIENCE_S,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def does(self, *words: str | Path) -> Ended:
        """Run a command that must succeed."""
        ended = self.run(*words)
        assert ended.code == 0, ended
        return ended

    def start(self, *words: str | Path, **options: Any) -> "StartedCommand":
        """Start a command without waiting for its end."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        more = {"cwd": self.project, "env": self.environment, "text": True, **streams, **options}
        return StartedCommand([*COMMAND, *map(str, words)], **more)

    def up(self) -> None:
        """Start the daemon in the background."""
        self.does("fleet", "up", "--detach")

    def down(self) -> None:
        """Stop the daemon if it exists, without a grace period."""
        if (self.state / "fleet" / "daemon.sock").exists():
            self.run("fleet", "down", "--now")

    # Repeated requests go to the daemon directly: a command takes a third of a second each time.

    @property
    def client(self) -> FleetClient:
        """A client of the daemon, as its commands use it."""
        return FleetClient(self.state / "fleet" / "daemon.sock")

    def status(self) -> Any:
        """Return the fleet's status."""
        return self.client.get("status")

    def is_up(self) -> bool:
        """Return whether the daemon answers."""
        try:
            self.status()
        except RingfenceError:
            return False
        return True

    def trigger(self, agent: str, *words: str) -> str:
        """Create a job; return its id."""
        return str(self.does("fleet", "trigger", agent, *words, "--json").json["job"]["id"])

    def job(self, job: str) -> Any:
        """Return one job."""
        return self.client.get("jobs", job)

    def jobs(self, **query: Any) -> list[Any]:
        """Return jobs, the newest first: those of an `agent`, in a `state`, ..."""
        return list(self.client.get("jobs", **query))

    def ends(self, job: str) -> Any:
        """Wait for the end of a job; return the job."""
        return self.waits(lambda: self.job(job), lambda found: found["ended_at"] is not None)

    def waits(self, ask: Callable[[], Any], is_it: Callable[[Any], bool]) -> Any:
        """Ask until the answer meets the condition; return it."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_it(answer := ask()):
            assert time.monotonic() < deadline, (answer, self.log)
            time.sleep(0.1)
        return answer

    def kill(self, pid: int) -> None:
        """Kill a process of the fleet, and wait until it is gone."""
        os.kill(pid, signal.SIGKILL)
        self.waits(lambda: is_alive(pid), lambda alive: not alive)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
