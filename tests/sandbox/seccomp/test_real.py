"""The filter in a real kernel: refused calls fail as promised, and everyday tools work under it."""

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import slow_after

from ringfence.sandbox.seccomp import filter_bytes, this_machine
from ringfence.sandbox.seccomp.numbers import NUMBERS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")

FENCED = """
import ctypes, os, sys
program = open(sys.argv[1], "rb").read()
class Fprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(program, len(program))
fprog = Fprog(len(program) // 8, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
assert libc.prctl(22, 2, ctypes.byref(fprog), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[2], sys.argv[2:])
"""

CALLER = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    outcome = libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(a) for a in arguments])
    return ctypes.get_errno() if outcome == -1 else 0
print(json.dumps([call(*one) for one in json.loads(sys.argv[1])]))
"""


@pytest.fixture(name="fenced")
def _fenced(tmp_path: Path) -> list[str]:
    """The start of a command line that runs the rest under the filter."""
    file = tmp_path / "filter"
    file.write_bytes(filter_bytes(this_machine()))
    return [sys.executable, "-I", "-c", FENCED, str(file)]


def run(argv: list[str], cwd: Path, **environment: str) -> str:
    """Run a command that must succeed; return its output."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(cwd), "LANG": "C.UTF-8", **environment}
    outcome = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def tool(name: str) -> str:
    """The path of a program; skips the test without it."""
    path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


CALLS = [
    ("mount", (0, 0, 0, 0, 0), errno.EPERM),
    ("umount2", (0, 0), errno.EPERM),
    ("unshare", (0x1000_0000,), errno.EPERM),
    ("clone", (0x1000_0000 | 17, 0, 0, 0, 0), errno.EPERM),
    ("clone3", (0, 0), errno.ENOSYS),
    ("io_uring_setup", (1, 0), errno.ENOSYS),
    ("setns", (-1 & 0xFFFF_FFFF, 0), errno.EPERM),
    ("ptrace", (0, 0, 0, 0), errno.EPERM),
    ("process_vm_readv", (1, 0, 0, 0, 0, 0), errno.EPERM),
    ("bpf", (0, 0, 0), errno.EPERM),
    ("perf_event_open", (0, 0, 0, 0, 0), errno.EPERM),
    ("keyctl", (0, 0, 0, 0, 0), errno.EPERM),
    ("userfaultfd", (1,), errno.EPERM),
    ("open_by_handle_at", (0, 0, 0), errno.EPERM),
    ("chroot", (0,), errno.EPERM),
    ("personality", (0x0040_0000,), errno.EPERM),
    ("personality", (0xFFFF_FFFF,), 0),
    ("socket", (40, 1, 0), errno.EPERM),
    ("socket", (17, 3, 0), errno.EPERM),
    ("socket", (38, 5, 0), errno.EPERM),
    ("socket", (16, 3, 9), errno.EPERM),
    ("socket", (16, 3, 0), 0),
    ("socket", (2, 3, 1), errno.EPERM),
    ("socket", (2, 3 | 0o2000000, 255), errno.EPERM),
    ("socket", (2, 1 | 0o2000000, 0), 0),
    ("socket", (1, 1, 0), 0),
    ("ioctl", (0, 0x5412, 0), errno.EPERM),
    ("ioctl", (0, 0x1_0000_5412, 0), errno.EPERM),
]
GETPID = {"x86_64": 39, "aarch64": 172}


def test_calls_fail_as_promised(fenced: list[str], tmp_path: Path) -> None:
    """The kernel returns for each call what the filter says."""
    numbers = NUMBERS[this_machine()]
    calls = json.dumps(
        [*([numbers[name], *arguments] for name, arguments, _ in CALLS), [GETPID[this_machine()]]]
    )
    *got, getpid = json.loads(run([*fenced, sys.executable, "-I", "-c", CALLER, calls], tmp_path))
    seen = [(name, arguments, code) for (name, arguments, _), code in zip(CALLS, got, strict=True)]
    assert seen == CALLS
    assert getpid == 0


@pytest.mark.parametrize(
    "number", slow_after(1, [400, 471, 5000, 0x4000_0000 | 39]), ids=["gap", "next", "far", "x32"]
)
def test_unknown_numbers_are_not_implemented(fenced: list[str], tmp_path: Path, number: int) -> None:
    """A call with an unknown number fails with ENOSYS, even if a newer kernel has it."""
    assert json.loads(run([*fenced, sys.executable, "-I", "-c", CALLER, f"[[{number}]]"], tmp_path)) == [38]


def test_32_bit_program_is_killed(fenced: list[str], tmp_path: Path) -> None:
    """A call through the 32-bit entry of x86_64 ends the process with SIGSYS."""
    if this_machine() != "x86_64":
        pytest.skip("int 0x80 is x86's")
    source = 'int main(void){ int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return r < 0; }'
    (tmp_path / "a.c").write_text(source)
    run([tool("gcc"), "a.c", "-o", "a"], tmp_path)
    outcome = subprocess.run([*fenced, "./a"], cwd=tmp_path, timeout=30, check=False)
    assert outcome.returncode == -31


PYTHON = """
import asyncio, multiprocessing, subprocess, tempfile, threading, socket, sqlite3, ssl
threading.Thread(target=lambda: None).start()
assert subprocess.run(["true"]).returncode == 0
async def main():
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    assert (await process.communicate(b"x"))[0] == b"x"
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b""
    writer.close(); server.close()
asyncio.run(main())
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1]) == [1]
socket.getaddrinfo("localhost", 80)
sqlite3.connect("a.db").execute("create table a (b)")
print("fine")
"""


def test_python_works(fenced: list[str], tmp_path: Path) -> None:
    """Python's threads, processes, event loop, sockets and databases work."""
    assert run([*fenced, sys.executable, "-I", "-c", PYTHON], tmp_path) == "fine\n"


def test_node_works(fenced: list[str], tmp_path: Path) -> None:
    """Node can serve, connect, start processes and use worker threads."""
    script = """
    const http = require("http"), {Worker} = require("worker_threads");
    require("child_process").execFileSync("true");
    new Worker("", {eval: true}).on("exit", () => {
      const server = http.createServer((q, r) => r.end("fine")).listen(0, "127.0.0.1", () =>
        http.get({port: server.address().port, host: "127.0.0.1"}, r =>
          r.on("data", d => { console.log(String(d)); server.close(); })));
    });
    """
    assert run([*fenced, tool("node"), "-e", script], tmp_path) == "fine\n"


@pytest.mark.slow
def test_java_works(fenced: list[str], tmp_path: Path) -> None:
    """Java starts, with the threads of its garbage collector."""
    assert "Runtime" in run([*fenced, tool("java"), "-XX:+UseG1GC", "--version"], tmp_path)


def test_git_works(fenced: list[str], tmp_path: Path) -> None:
    """Git commits and clones."""
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    git = [*fenced, tool("git")]
    run([*git, "init", "-q", "a"], tmp_path)
    run([*git, "-C", "a", "commit", "-q", "--allow-empty", "-m", "first"], tmp_path, **identity)
    run([*git, "clone", "-q", "a", "b"], tmp_path)
    assert "first" in run([*git, "-C", "b", "log"], tmp_path)


def test_gcc_works(fenced: list[str], tmp_path: Path) -> None:
    """A program is compiled and run."""
    (tmp_path / "a.c").write_text('#include <stdio.h>\nint main(void){ puts("fine"); return 0; }\n')
    run([*fenced, tool("gcc"), "a.c", "-o", "a"], tmp_path)
    assert run([*fenced, "./a"], tmp_path) == "fine\n"


@pytest.mark.slow
def test_pip_works(fenced: list[str], tmp_path: Path) -> None:
    """Pip lists what is installed."""
    python = tool("python3")
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{python} has no pip")
    assert "pip" in run([*fenced, python, "-m", "pip", "--disable-pip-version-check", "list"], tmp_path)
