"""Counts the files of one package that a use case enters: how many of them a reader has to open to follow it.

    .venv/bin/python -m benchmarks.files_entered

prints the files of `sandbox/workspace` that one run in mode `bind` enters, with the number of calls into each.
"""

import inspect
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import anyio

import ringfence

_PACKAGE = Path(ringfence.__file__).parent
_WORKSPACE = _PACKAGE / "sandbox" / "workspace"


@contextmanager
def entered(package: Path) -> Iterator[Counter[str]]:
    """Count the calls into each file below `package`, from this thread and those that start meanwhile."""
    found: Counter[str] = Counter()
    top = f"{package}/"

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        # The body of a module or class is importing, not use: only functions have fast local variables.
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(top):
            found[code.co_filename.removeprefix(top)] += 1

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def bind_run(directory: Path) -> Counter[str]:
    """The files of `sandbox/workspace` that one run in mode `bind`, which changes a file, enters."""
    from ringfence.job.outcome import Outcome
    from ringfence.job.request import CustomWork, RunRequest
    from ringfence.job.run import JobRun
    from ringfence.job.state import JobState
    from ringfence.sandbox import Sandbox, SandboxSpec

    workspace = _repository(directory / "project")
    os.environ["RINGFENCE_STATE_DIR"] = str(directory / "state")

    async def work(sandbox: Sandbox, _emit: object) -> Outcome:
        await sandbox.run(["sh", "-c", "echo two > a.txt"])
        return Outcome(JobState.UNVERIFIED, "done")

    request = RunRequest(
        CustomWork("change a file", work),
        workspace,
        SandboxSpec(backend="bubblewrap", workspace=workspace, mode="bind"),
        purpose="exec",
    )
    with entered(_WORKSPACE) as found:
        result = anyio.run(lambda: JobRun(request).run())
    assert result.state is JobState.UNVERIFIED, result.reason
    assert result.work is not None
    return found


def _repository(path: Path) -> Path:
    path.mkdir()
    (path / "a.txt").write_text("one\n")
    git = ["git", "-c", "user.name=T", "-c", "user.email=t@t"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=path, check=True)
    if os.geteuid() == 0:
        for folder, folders, names in os.walk(path):
            for name in (".", *folders, *names):
                os.chown(Path(folder, name), 12_345, 12_345, follow_symlinks=False)
    return path


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="ringfence-benchmark-") as directory:
        Path(directory).chmod(0o755)
        found = bind_run(Path(directory))
    print(f"{len(found)} files of {_WORKSPACE.relative_to(_PACKAGE)} entered, {found.total()} calls")
    for name, calls in sorted(found.items()):
        print(f"{calls:8} {name}")


if __name__ == "__main__":
    main()
