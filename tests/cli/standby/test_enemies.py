"""Who speaks to a standby with evil intent gets nothing of it: a confined program of its own user above all."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.standby.conftest import Lab

pytestmark = pytest.mark.slow
_ASK = """
import os, socket, sys
os.chdir(sys.argv[1])
caller = socket.socket(socket.AF_UNIX)
caller.settimeout(60)
caller.connect("socket")
caller.recvmsg(1, 64)
life, _ = os.pipe()
request = os.open(sys.argv[2], os.O_RDONLY | os.O_NONBLOCK)
socket.send_fds(caller, [b"c"], [request, life, os.open("/", os.O_PATH)])
print(caller.recv(1))
"""


def _ask(lab: Lab, request: Path, *before: str) -> str:
    """What a program is told that speaks as a command does, and says what is in a file."""
    words = [*before, sys.executable, "-c", _ASK, str(lab.state / "standby"), str(request)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_what_a_confined_program_says_is_not_read(shared: Lab, tmp_path: Path):
    """`marshal` can be crashed by what it reads; a fork that is not confined does not read it for who is."""
    request = tmp_path / "request"
    request.write_bytes(b"no request at all")
    assert _ask(shared, request, "setpriv", "--no-new-privs") == "b''\n"
    assert shared.status()["last_refusal"] == "NoNewPrivs is not the standby's"


def test_a_request_without_an_end_is_not_read(shared: Lab):
    """It would fill the memory, or keep the fork for ever."""
    assert _ask(shared, Path("/dev/zero")) == "b''\n"
    assert "are not a file of at most" in shared.status()["last_refusal"]


def test_it_removes_nothing_that_is_not_its_own(own: Lab, tmp_path: Path):
    """Where another may exchange its directory (root's, with the home of a user) it follows no path twice."""
    others = tmp_path / "others"
    (others / "standby").mkdir(parents=True)
    (others / "standby" / "socket").touch()
    pid = own.status()["pid"]
    ends = os.pidfd_open(pid)
    own.state.rename(tmp_path / "moved")
    own.state.symlink_to(others)
    os.kill(pid, signal.SIGTERM)
    assert select.select([ends], [], [], 60)[0]
    os.close(ends)
    assert (others / "standby" / "socket").exists()
    assert not (tmp_path / "moved" / "standby" / "socket").exists()


def test_one_that_is_slow_at_each_word_holds_nothing_up(own: Lab, place: Path):
    """The time is for all of its words: who takes most of it for each is not waited for."""
    assert own.run("standby", "stop", "--now").returncode == 0
    pause, heard = threading.Event(), []
    with socket.socket(socket.AF_UNIX) as listening, subprocess.Popen(["true"]) as ends:
        process = os.pidfd_open(ends.pid)
        listening.bind(str(own.state / "standby" / "socket"))
        listening.listen()

        def serve() -> None:
            caller, _ = listening.accept()
            with caller:
                pause.wait(1.5)
                socket.send_fds(caller, [b"h"], [process])
                _, given, _, _ = socket.recv_fds(caller, 1, 250)
                pause.wait(1.5)
                with suppress(BrokenPipeError):
                    caller.sendall(b"r")
                    heard.append(caller.recv(1))
                for each in given:
                    os.close(each)

        thread = threading.Thread(target=serve)
        thread.start()
        done = own.run("exec", "-C", place, "--", "echo", "by itself")
        thread.join()
        os.close(process)
    assert (done.returncode, done.stdout) == (0, "by itself\n")
    assert b"g" not in heard
