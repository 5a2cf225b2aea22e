"""What a standing sandbox may reach is changed, and its ports are shown, while it runs."""

import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_sandbox import box  # noqa: F401 -- a fixture

from ringfence.events import EgressChanged, PortPublished, PortWithdrawn
from ringfence.journal import read, runs_dir

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


def events(kind: type[Any]) -> list[Any]:
    """Those of a kind in the one record there is."""
    (run,) = runs_dir().iterdir()
    return [record.event for record in read(run) if isinstance(record.event, kind)]


@pytest.fixture
def service() -> Iterator[int]:
    """A TCP port of this machine that answers every request with a word."""
    import subprocess
    import sys

    script = (
        "import http.server as h\n"
        "class S(h.BaseHTTPRequestHandler):\n"
        " def do_GET(self):\n"
        "  self.send_response(200); self.end_headers(); self.wfile.write(b'reached')\n"
        " def log_message(self, *words): pass\n"
        "s = h.ThreadingHTTPServer(('127.0.0.1', 0), S); print(s.server_port, flush=True); s.serve_forever()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def test_allow_and_deny(box: Cli, service: int) -> None:  # noqa: F811
    """Nothing is reached until it is allowed, and no longer once it is denied; each change is recorded."""
    ask = ("exec", "box", "--", "curl", "-sS", "--noproxy", "", f"http://127.0.0.1:{service}/")
    assert b"is not allowed" in box(*ask)[1]
    assert box("allow", "box", f"127.0.0.1:{service}")[0] == 0
    assert box(*ask)[1] == b"reached"
    assert f'"allow 127.0.0.1:{service}"'.encode() in box("inspect", "box")[1]
    assert box("deny", "box", f"127.0.0.1:{service}")[0] == 0
    assert b"is not allowed" in box(*ask)[1]
    assert [event.action for event in events(EgressChanged)] == ["allow", "deny"]


def test_a_command_is_told_what_was_refused(box: Cli, service: int) -> None:  # noqa: F811
    """At its end, with the way to allow it; once, however often it was asked. Others hear nothing of it."""
    ask = "for n in 1 2; do curl -s https://example.org/; done; curl -s http://allowed.invalid/; exit 3"
    assert box("allow", "box", "allowed.invalid")[0] == 0
    code, _, err = box("exec", "box", "--", "sh", "-c", ask)
    told = err.decode().splitlines()
    assert code == 3
    assert told[0].startswith(
        "ringfence: refused: example.org:443 is not allowed; allow it: --allow example.org"
    )
    assert told[1].startswith("ringfence: allowed.invalid:80 cannot be reached: ")
    assert told[2:] == ["ringfence: while it stands, `ringfence sandbox allow box HOST` allows a host"]
    assert box("exec", "box", "--", "true")[2] == b""


def test_a_command_is_told_what_was_denied(box: Cli) -> None:  # noqa: F811
    """A denial of a sandbox that stands stands in no file; the way to take it back is told, and does."""
    ask = ("exec", "box", "--", "curl", "-s", "http://denied.invalid/")
    assert box("deny", "box", "denied.invalid")[0] == 0
    told = box(*ask)[2].decode().splitlines()
    assert told[0].startswith("ringfence: refused: denied.invalid:80 is denied by name")
    assert told[1:] == [
        "ringfence: while it stands, `ringfence sandbox allow box RULE` takes back the denial of the same words"
    ]
    assert box("allow", "box", "denied.invalid")[0] == 0
    assert b"refused" not in box(*ask)[2]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("allow", "box", "*.com"), 2, b"anybody can register"),
        (("allow", "box", "169.254.169.254"), 4, b"credentials"),
        (("allow", "box", "no rule"), 2, b"ringfence: 'no rule' is no rule; write a preset"),
        (("deny", "box", "packages"), 2, b"cannot be denied: as such it is not allowed; deny hosts"),
        (("allow", "absent", "pypi.org"), 2, b"there is no standing sandbox 'absent'"),
        (("forward", "absent", "80"), 2, b"there is no standing sandbox 'absent'"),
    ],
    ids=str,
)
def test_refused(box: Cli, words: tuple[str, ...], code: int, reason: bytes) -> None:  # noqa: F811
    """A change that opens too much, or of what is not there, is refused in one line."""
    ended = box(*words)
    assert (ended[0], ended[1]) == (code, b"")
    assert reason in ended[2]
    assert ended[2].count(b"\n") == 1


def test_forward(box: Cli, start: Cli) -> None:  # noqa: F811
    """A server inside is reached at the address that is printed until Ctrl-C; both ends are recorded."""
    script = (
        "import http.server as h\n"
        "print('ready', flush=True); h.test(h.SimpleHTTPRequestHandler, port=8080, bind='127.0.0.1')"
    )
    server = start("sandbox", "exec", "box", "--", "python3", "-uc", script)
    assert server.stdout.readline() == b"ready\n"
    assert b"Serving" in server.stdout.readline()
    shown = start("sandbox", "forward", "box", "8080")
    address = shown.stdout.readline().decode().strip()
    with urllib.request.urlopen(address, timeout=30) as answer:
        assert answer.status == 200
    shown.send_signal(signal.SIGINT)
    assert shown.wait(30) == 130
    box("exec", "box", "--", "true")  # the holder has seen the end before it answers this
    (published,), (withdrawn,) = events(PortPublished), events(PortWithdrawn)
    assert address == f"http://127.0.0.1:{published.host_port}/"
    assert (withdrawn.port, withdrawn.connections) == (8080, 1)


def test_taken_port(box: Cli) -> None:  # noqa: F811
    """A port of this machine that is taken is told."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = box("forward", "box", "8080", "--host-port", str(port))
    assert ended[0] == 2
    assert f"port {port} of this machine cannot be listened on".encode() in ended[2]


def test_other_users_files_are_untouched(workspace: Path, box: Cli) -> None:  # noqa: F811
    """What is changed of a sandbox changes nothing in its workspace."""
    before = sorted(workspace.rglob("*"))
    box("allow", "box", "packages")
    assert sorted(workspace.rglob("*")) == before
