"""The product as a user has it: a command in a directory, with a home and a state directory of its own."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.promises import names
from tests.promises.spelling import (
    help_of,
    read_document,
    spell_command,
    spell_import,
    spell_option,
    spell_setting,
)

PYTHON = str(Path(os.environ.get("PROMISES_PYTHON", sys.executable)).absolute())
PATIENCE_S = 60.0
"""Time limit of a command in seconds; none takes so long unless it hangs."""
OWNER = 12_345
"""Owner of the workspaces when the tests run as root, so that commands treat them as any other user's."""

Answer = TypeVar("Answer")
Turn = dict[str, Any]
Event = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """The result of a command."""

    words: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        """Its output as text."""
        return self.stdout.decode(errors="backslashreplace")

    @property
    def err(self) -> str:
        """Its messages as text."""
        return self.stderr.decode(errors="backslashreplace")

    @property
    def json(self) -> Any:
        """Its output, where that is one JSON document."""
        return read_document(json.loads(self.stdout))

    @property
    def events(self) -> list[Event]:
        """Its output, where that is a JSON object on each line."""
        return [read_document(json.loads(line)) for line in self.stdout.splitlines()]

    def ends_as(self, meaning: str) -> bool:
        """Whether its exit code has this meaning."""
        return self.code in names.EXITS[meaning]

    def fails_as(self, meaning: str, *values: str | Path) -> str:
        """Check that it failed with one line on stderr, which holds each value, and with no output; return the line."""
        assert self.ends_as(meaning), self
        assert not self.stdout, self
        (line,) = self.err.strip().splitlines()
        assert all(str(value) in line for value in values), self
        return line


@dataclass
class Product:
    """The command, a workspace and a state directory.

    Args:
        place: An empty directory for all of it, which other users can pass through.
        template: What the workspace is a copy of; None: it is empty.
        environment: Further variables of its commands.
        is_forked: Whether a command that is waited for is forked from a process that has imported the package already:
            the same in a third of the time. Only for the package of the interpreter that runs the tests.
    """

    place: Path
    template: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)
    is_forked: bool = False

    def __post_init__(self) -> None:
        self.home = self.place / "home"
        self.project = self.place / "project"
        self.state = self.place / "state" / "ringfence"
        self.settings = self.place / "config" / "ringfence" / "ringfence.yaml"
        self.home.mkdir(mode=0o700)
        if self.template is None:
            self.project.mkdir()
        else:
            shutil.copytree(self.template, self.project, symlinks=True)
        give(self.project)
        self.environment = {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "TERM": "dumb",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "CODEX_HOME": str(self.home / ".codex"),
            "CLAUDE_CONFIG_DIR": str(self.home / ".claude"),
            **{
                f"XDG_{name}_HOME": str(self.place / name.lower())
                for name in ("STATE", "CONFIG", "CACHE", "DATA")
            },
            **self.environment,
        }

    def words(self, command: str, *words: str | Path) -> list[str]:
        """The whole command line of a command."""
        spelled = spell_command(PYTHON, command) if command else []
        return [
            *(PYTHON, "-P", "-m", "ringfence", *spelled),
            *(spell_option(PYTHON, spelled, str(word)) for word in words),
        ]

    def __call__(
        self,
        command: str,
        *words: str | Path,
        stdin: bytes | str | None = None,
        cwd: Path | None = None,
        timeout_s: float = PATIENCE_S,
        **variables: str | Path,
    ) -> Ended:
        """Run a command to its end, in the workspace unless `cwd` says otherwise, with further variables."""
        given = stdin.encode() if isinstance(stdin, str) else stdin
        line = self.words(command, *words)
        environment = self.variables(**variables)
        with self._process(line, cwd or self.project, environment) as process:
            try:
                out, errors = process.communicate(given or b"", timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        return Ended(tuple(line[4:]), process.returncode, out, errors)

    def _process(self, line: list[str], cwd: Path, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        """Start a command: by Python itself, or forked from a Python that has its imports behind it.

        A variable such as PYTHONPATH takes effect only where Python starts.
        """
        streams: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        if not self.is_forked or any(name.startswith("PYTHON") for name in environment):
            return subprocess.Popen(line, cwd=cwd, env=environment, **streams)
        from tests.forked import Forked

        return Forked[bytes]([line[0], *line[2:]], cwd=cwd, env=environment, **streams)

    def does(self, command: str, *words: str | Path, **options: Any) -> Ended:
        """Run a command that must succeed."""
        ended = self(command, *words, **options)
        assert ended.code == 0, ended
        return ended

    @contextmanager
    def started(
        self, command: str, *words: str | Path, cwd: Path | None = None, **options: Any
    ) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a command that goes on; what is left of it in the end is killed."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            self.words(command, *words),
            cwd=cwd or self.project,
            **{"env": self.variables(), "start_new_session": True, **streams, **options},
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait(PATIENCE_S)

    def variables(self, **more: str | Path) -> dict[str, str]:
        """The environment of its commands."""
        return {**self.environment, **{name: str(value) for name, value in more.items()}}

    def python(self, code: str, *imports: str, cwd: Path | None = None, **variables: str | Path) -> Ended:
        """Run a program of a user's, which begins with the imports of the public names that it uses."""
        text = "".join(spell_import(name) for name in imports) + code
        done = subprocess.run(
            [PYTHON, "-P", "-c", text],
            cwd=cwd or self.project,
            env=self.variables(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
        )
        return Ended(("-c", code), done.returncode, done.stdout, done.stderr)

    def exec(self, *command: str, **options: Any) -> Ended:
        """Run one command in a sandbox."""
        return self("exec", "--", *command, **options)

    def shell(self, script: str, *words: str | Path, **options: Any) -> Ended:
        """Run one line of shell in a sandbox."""
        return self("exec", *words, "--", "sh", "-c", script, **options)

    def run(self, model: str, *words: str | Path, prompt: str = "Do it.", **options: Any) -> Ended:
        """Let an agent work."""
        return self("run", "--model", model, *words, prompt, **options)

    def script(self, *turns: Turn, name: str = "script", **more: Any) -> str:
        """Write what a scripted model says, and name that model."""
        file = self.place / f"{name}.yaml"
        said = {"turns": turns} if turns else {}
        file.write_text(json.dumps({"price": {"input": 1, "output": 1}, **said, **more}))
        return f"scripted:{file}"

    def configure(self, file: Path | None = None, **sections: Any) -> Path:
        """Write a configuration, the workspace's own unless `file` names another; sections by the tests' keys."""
        file = file or self.project / "ringfence.yaml"
        schema = help_of(PYTHON, "config") and (self.schema() if names.SETTINGS else "")
        document: dict[str, Any] = {}
        for key, value in flatten(sections):
            *above, last = spell_setting(schema, key).split(".")
            at = document
            for part in above:
                at = at.setdefault(part, {})
            at[last] = value
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document))
        give(self.project)
        return file

    def schema(self) -> str:
        """The JSON Schema of configurations."""
        return self.does("config schema").out

    def file(self, kind: str, **parts: str) -> Path:
        """A file of the state directory."""
        paths = [self.state / path.format(**parts) for path in names.FILES[kind]]
        return next((path for path in paths if path.exists()), paths[0])

    def runs(self) -> list[str]:
        """The ids of all runs, the newest first."""
        return sorted((path.name for path in self.file("run", run="").iterdir()), reverse=True)

    def record(self, run: str | None = None) -> list[Event]:
        """The lines of a run's record, by default the newest run's."""
        file = self.file("journal", run=run or self.runs()[0])
        return [read_document(json.loads(line)) for line in file.read_bytes().splitlines()]

    def recorded(self, event: str, run: str | None = None) -> list[Event]:
        """What a run's record says of each event of this name."""
        return [line["data"] for line in self.record(run) if line["event"] == event]

    def ended(self, run: str | None = None) -> Event:
        """How a run ended, by its record."""
        (end,) = self.recorded("job.ended", run)
        return {**end, "state": read_document({"state": end["state"]})["state"]}

    def write(self, name: str, text: str = "", mode: int | None = None) -> Path:
        """Write a file of the workspace, as its owner would."""
        file = self.project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if mode is not None:
            file.chmod(mode)
        give(self.project)
        return file

    def git(self, *words: str) -> str:
        """Run git in the workspace, on the user's side."""
        options = ["-c", "user.name=U", "-c", "user.email=u@example.com", "-c", "safe.directory=*"]
        command = ["git", *options, *words]
        done = subprocess.run(
            command, cwd=self.project, env=self.environment, capture_output=True, check=True
        )
        give(self.project)
        return done.stdout.decode()


def flatten(sections: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Keys with dots, and their values; a mapping below the second level is a value."""
    for key, value in sections.items():
        if isinstance(value, dict) and not above and value and key not in ("secrets", "prices", "agents"):
            yield from flatten(value, f"{key}.")
        else:
            yield above + key, value


def give(place: Path, owner: int = OWNER) -> None:
    """Change the owner of a tree if the caller is root: commands work on a copy of root's own files."""
    if os.getuid() == 0:
        for folder, _, files in os.walk(place):
            for name in (".", *files):
                os.chown(Path(folder, name), owner, owner, follow_symlinks=False)


def says(text: str = "", *commands: str, **more: Any) -> Turn:
    """A turn of a scripted model: a text, and commands that it wants to run."""
    calls = [{"run": command} for command in commands]
    return {**({"text": text} if text else {}), **({"tools": calls} if calls else {}), **more}


def poll(ask: Callable[[], Answer], *, timeout_s: float = PATIENCE_S) -> Answer:
    """Call until the result is true, and return it."""
    deadline = time.monotonic() + timeout_s
    while not (answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def read_until(stream: Any, text: bytes, *, timeout_s: float = PATIENCE_S) -> bytes:
    """What a process prints up to a text."""
    deadline = time.monotonic() + timeout_s
    found = b""
    while text not in found:
        assert select.select([stream], [], [], max(0, deadline - time.monotonic()))[0], found
        chunk = os.read(stream.fileno(), 65_536)
        assert chunk, found
        found += chunk
    return found


def is_alive(process: int) -> bool:
    """Whether a process is there, and no mere zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_with(words: bytes) -> list[int]:
    """Processes of the machine whose command line holds some words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # gone meanwhile
                if words in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
