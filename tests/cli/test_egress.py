"""`--allow` from the command line to the record."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.events import EgressClosed, EgressDecided, JobCreated, PolicyLoosened, SandboxCreated
from ringfence.journal import read, runs_dir

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


def events(kind: type[Any]) -> list[Any]:
    """Those of a kind in the one record there is."""
    (run,) = runs_dir().iterdir()
    return [record.event for record in read(run) if isinstance(record.event, kind)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[int]:
    """A web server of this machine."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served/file").write_text("reached\n")
    argv = [
        sys.executable,
        "-u",
        "-m",
        "http.server",
        "0",
        "--bind",
        "127.0.0.1",
        "-d",
        str(tmp_path / "served"),
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline().split()[5])
        process.kill()


def test_exec(start: Cli, workspace: Path, service: int) -> None:
    """`exec --allow` reaches what it names and nothing else; grant, decisions and bytes are in the record."""
    url = f"http://127.0.0.1:{service}/file"
    ask = f"curl -sS --noproxy '' {url}; curl -sS http://other.example/"
    process = start("exec", "-C", workspace, "--allow", f"127.0.0.1:{service}", "--", "sh", "-c", ask)
    out, err = process.communicate(timeout=60)
    assert out.decode().startswith("reached\nringfence: refused: other.example:80 is not allowed\n"), err
    assert err.decode().endswith(
        "ringfence: refused: other.example:80 is not allowed; "
        "allow it: --allow other.example, or egress.allow in ringfence.yaml\n"
    )
    assert [(event.host, event.allowed) for event in events(EgressDecided)] == [
        ("127.0.0.1", True),
        ("other.example", False),
    ]
    (closed,) = events(EgressClosed)
    assert closed.received_bytes > len("reached\n")
    assert events(SandboxCreated)[0].policy["egress"] == [f"allow 127.0.0.1:{service}"]
    assert events(PolicyLoosened) == []


def test_open_is_told(start: Cli, workspace: Path) -> None:
    """`--allow open` is said aloud and is in the record as a loosening."""
    process = start("exec", "-C", workspace, "--allow", "open", "--", "true")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"WARNING: egress to every public host (by --allow)" in err
    assert [event.what for event in events(PolicyLoosened)] == ["egress to every public host"]


def test_nothing_by_default(start: Cli, workspace: Path) -> None:
    """Without `--allow` there is no proxy and no variable that names one."""
    process = start(
        "exec", "-C", workspace, "--", "sh", "-c", "env | grep -ci proxy; curl -sS http://127.0.0.1:3128/"
    )
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, b"0\n")


def test_bad_rule(start: Cli, workspace: Path) -> None:
    """A rule that is none is wrong usage, before anything is started."""
    process = start("exec", "-C", workspace, "--allow", "https://pypi.org", "--", "true")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert (
        b"--allow: egress.allow.0: 'https://pypi.org' has a scheme; write the host alone: 'pypi.org'" in err
    )


def test_exec_takes_budgets(start: Cli, workspace: Path) -> None:
    """A command that may ask models can be bound, as a run can."""
    assert (
        start("exec", "-C", workspace, "--max-tokens", "7", "--max-cost-usd", "0.5", "--", "true").wait(60)
        == 0
    )
    limits = events(JobCreated)[0].configuration["limits"]
    assert (limits["tokens"], limits["cost_usd"]) == (7, 0.5)
