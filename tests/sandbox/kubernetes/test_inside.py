"""The programs that are sent into a pod do what they promise, as the processes that they are there."""

import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.sandbox.conftest import OTHER_UID

from ringfence.sandbox.kubernetes.inside import program
from ringfence.sandbox.tar.pack import pack_workspace
from ringfence.sandbox.tar.stream import TOP, Bounds
from ringfence.sandbox.tar.unpack import unpack_workspace

BOUNDS = Bounds(1024**3, 100_000)
_PEAK = """
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        sys.stderr.write(line.split()[1])
"""


def command(name: str, *words: object, after: str = "") -> list[str]:
    """The command that runs a program, as in a pod."""
    return [sys.executable, "-I", "-S", "-c", program(name) + "\n" + after, *map(str, words)]


def run(name: str, *words: object, data: bytes = b"", after: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run a program as a user who is not root, for whom closed files are closed."""
    uid = OTHER_UID if os.geteuid() == 0 else None
    return subprocess.run(
        command(name, *words, after=after),
        input=data,
        capture_output=True,
        check=False,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
        timeout=60,
    )


def owned_directory(path: Path) -> Path:
    """Make a directory that belongs to that user."""
    path.mkdir()
    return owned(path)


@pytest.fixture
def place(workspace: Path) -> Iterator[Path]:
    """A directory of that user's, in which is the workspace."""
    owned_directory(workspace / TOP)
    yield workspace
    subprocess.run(["chmod", "-R", "u+rwX", "--", workspace], check=True)


def owned(path: Path) -> Path:
    """Give a file to that user, which is made if it is not there."""
    if not path.exists():
        path.touch()
    if os.geteuid() == 0:
        os.chown(path, OTHER_UID, OTHER_UID, follow_symlinks=False)
    return path


def packed(source: Path) -> bytes:
    """A workspace as ringfence uploads it."""
    file = io.BytesIO()
    pack_workspace(source, file.write, uid=os.getuid() or OTHER_UID, gid=OTHER_UID, bounds=BOUNDS)
    return file.getvalue()


def entries(data: bytes) -> dict[str, tarfile.TarInfo]:
    """What a stream holds."""
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as tar:
        return {member.name: member for member in tar}


# --- files: unpack


@contextmanager
def receiving(place: Path, data: bytes, *, ends: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """The first process of the container `files`, as a user who is not root, and what it is sent."""
    uid = OTHER_UID if os.geteuid() == 0 else None
    with subprocess.Popen(
        command("files", place),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
    ) as process:
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(data)
                process.stdin.flush()
            if ends:
                process.stdin.close()
            yield process
        finally:
            process.kill()


def answer(process: subprocess.Popen[bytes]) -> bytes:
    """Its reply to the upload; empty if it ended without a word."""
    assert process.stdout is not None
    return process.stdout.readline()


def announced(data: bytes) -> bytes:
    """The request to unpack a tar file."""
    return b'{"unpack": %d}\n' % len(data) + data


def done(data: bytes) -> bytes:
    """The reply to it."""
    return b'{"unpacked": %d}\n' % len(data)


def test_upload_arrives_as_it_was(place: Path, tmp_path: Path) -> None:
    """Contents, modes, links that lead anywhere, and names that are no text arrive as they were."""
    source = tmp_path / "source"
    (source / "closed").mkdir(parents=True)
    (source / "closed" / "x").write_bytes(b"y" * 3_000_000)
    (source / "run").write_text("#!/bin/sh\n")
    (source / "run").chmod(0o755)
    (source / "absolute").symlink_to("/etc/hostname")
    (source / "out").symlink_to("../../elsewhere")
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).write_text("no text")
    (source / "closed").chmod(0o500)
    data = packed(source)
    with receiving(place, announced(data)) as process:
        assert answer(process) == done(data)
    top = place / TOP
    assert (top / "closed" / "x").read_bytes() == b"y" * 3_000_000
    assert stat.S_IMODE((top / "run").stat().st_mode) & 0o111
    assert stat.S_IMODE((top / "closed").stat().st_mode) == 0o500
    assert (top / "absolute").readlink() == Path("/etc/hostname")
    assert (top / "out").readlink() == Path("../../elsewhere")
    assert Path(os.fsdecode(os.fsencode(top) + b"/\xff")).read_text() == "no text"


@pytest.mark.parametrize("kept", [0, 512, 1024, 10_000], ids=lambda size: f"{size} bytes")
def test_upload_that_breaks_is_never_done(place: Path, tmp_path: Path, kept: int) -> None:
    """A stream that ends early, even between two files, is not reported as done, and the last line says why."""
    (tmp_path / "a").write_bytes(b"a" * 100_000)
    data = announced(packed(tmp_path))
    with receiving(place, data[: data.index(b"\n") + 1 + kept], ends=True) as process:
        assert answer(process) == b""
        assert process.stderr is not None
        assert process.stderr.read().strip().splitlines()[-1]
        assert process.wait(timeout=20) != 0


def test_upload_does_not_wait_for_the_end_of_stdin(place: Path, tmp_path: Path) -> None:
    """The program is done when it has its bytes, although stdin stays open: older clusters cannot end it."""
    (tmp_path / "a").write_text("a")
    data = packed(tmp_path)
    with receiving(place, announced(data)) as process:
        assert answer(process) == done(data)


@pytest.mark.parametrize("has_workspace", [True, False], ids=["after an upload", "without a workspace"])
def test_it_ends_at_once_with_the_pod(place: Path, tmp_path: Path, has_workspace: bool) -> None:
    """It waits until the pod ends; as the first process of a container it would ignore SIGTERM by default."""
    data = packed(tmp_path)
    with receiving(place, announced(data) if has_workspace else b"", ends=True) as process:
        if has_workspace:
            assert answer(process) == done(data)
        while b"SigCgt" in (state := Path(f"/proc/{process.pid}/status").read_bytes()):
            caught = int(state.partition(b"SigCgt:")[2].split()[0], 16)
            if caught & 1 << (signal.SIGTERM - 1):
                break
        process.terminate()
        assert process.wait(timeout=20) == 0


# --- get


def test_download_is_what_was_there(place: Path, tmp_path: Path) -> None:
    """What is packed inside is unpacked outside with contents, modes, times, links and hard links."""
    top = place / TOP
    owned(top / "a").write_text("one")
    owned(top / "a").chmod(0o640)
    os.utime(top / "a", (1_000_000_000, 1_000_000_000))
    (top / "b").hardlink_to(top / "a")
    owned_directory(top / "empty")
    (top / "link").symlink_to("/etc/passwd")
    name = os.fsdecode(b"\xff" + b"n" * 200)
    owned(top / name).write_text("no text")
    done = run("get", place, TOP)
    assert done.returncode == 0, done.stderr
    target, original = tmp_path / "target", tmp_path / "original"
    target.mkdir()
    original.mkdir()
    stream = io.BytesIO(done.stdout)
    unpacked = unpack_workspace(stream.read, target, original=original, protected=[], bounds=BOUNDS)
    assert unpacked.left_out == []
    assert (target / "a").read_text() == (target / "b").read_text() == "one"
    assert stat.S_IMODE((target / "a").stat().st_mode) == 0o640
    assert (target / "a").stat().st_mtime == 1_000_000_000
    assert (target / "empty").is_dir()
    assert (target / "link").readlink() == Path("/etc/passwd")
    assert (target / name).read_text() == "no text"


def test_links_are_not_followed(place: Path) -> None:
    """A link that an agent left is a link in the stream, never what it leads to."""
    top = place / TOP
    (top / "file").symlink_to("/etc/passwd")
    (top / "directory").symlink_to("/etc")
    found = entries(run("get", place, TOP).stdout)
    assert found.keys() == {TOP, f"{TOP}/file", f"{TOP}/directory"}
    assert all(one.issym() for name, one in found.items() if name != TOP)


def test_what_an_agent_closed_is_downloaded(place: Path) -> None:
    """Files and directories that are closed to their owner are in the stream, with their modes."""
    closed = owned_directory(place / TOP / "closed")
    (closed / "file").write_text("x")
    owned(closed / "file").chmod(0)
    closed.chmod(0)
    done = run("get", place, TOP)
    found = entries(done.stdout)
    assert done.returncode == 0, done.stderr
    assert found[f"{TOP}/closed"].mode == found[f"{TOP}/closed/file"].mode == 0
    assert found[f"{TOP}/closed/file"].size == 1


def test_pipes_and_sockets_do_not_hold_it_up(place: Path) -> None:
    """A pipe is named, and not opened; a socket, which no tar file can hold, is left out."""
    top = place / TOP
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(top / "socket"))
        found = entries(run("get", place, TOP).stdout)
    assert found[f"{TOP}/pipe"].isfifo()
    assert f"{TOP}/socket" not in found


def test_a_bottomless_tree_does_not_stop_a_download(place: Path) -> None:
    """A tree that is deeper than paths may be long is cut off there, and everything else is downloaded."""
    owned(place / TOP / "z").write_text("last")
    here = os.open(place / TOP, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        os.chown("d" * 200, OTHER_UID if os.geteuid() == 0 else -1, -1, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    done = run("get", place, TOP)
    shutil.rmtree(place / TOP / ("d" * 200))
    assert done.returncode == 0, done.stderr
    found = entries(done.stdout)
    assert f"{TOP}/z" in found
    assert max(len(name) for name in found) <= 4096


def test_a_deep_tree_is_downloaded(place: Path) -> None:
    """A tree as deep as paths may be long is downloaded, where fewer files may be open at once by default."""
    here = os.open(place / TOP, os.O_RDONLY)
    depth = 1900
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        os.chown("d", OTHER_UID if os.geteuid() == 0 else -1, -1, dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    done = run("get", place, TOP)
    subprocess.run(["rm", "-rf", "--", place / TOP / "d"], check=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"ustar") >= depth


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_linked", [False, True], ids=["files", "hard links"])
def test_a_directory_of_many_entries_is_downloaded(place: Path, is_linked: bool) -> None:
    """Neither a directory with very many entries, nor very many hard links, take more memory than the pod gives."""
    count, top = 120_000, place / TOP
    inside = os.open(top, os.O_RDONLY)
    for number in range(count):
        os.close(os.open(f"{number}", os.O_CREAT, dir_fd=inside))
        if is_linked:
            os.link(f"{number}", f"{number}-again", src_dir_fd=inside, dst_dir_fd=inside)
    os.close(inside)
    report = place / "peak"
    words = [*command("get", place, TOP, after=_PEAK)]
    with report.open("wb") as said, subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said) as process:
        assert process.stdout is not None
        size = 0
        while data := process.stdout.read(1 << 20):
            size += len(data)
    shutil.rmtree(top)
    owned_directory(top)
    assert process.returncode == 0
    assert size > 512 * count * (2 if is_linked else 1)
    assert int(report.read_text()) < (56 if is_linked else 24) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("name", ["get", "files"])
def test_many_files_take_no_memory(place: Path, tmp_path: Path, name: str) -> None:
    """The memory of either program does not grow with the number of files: its container has little."""
    peaks = []
    source = tmp_path if name == "files" else place / TOP
    for count in (1, 20_000):
        for number in range(count):
            Path(source, f"{count}-{number}").touch()
        peaks.append(peak_of_receiving(place, packed(source)) if name == "files" else peak_of_get(place))
        shutil.rmtree(place / TOP)
        owned_directory(place / TOP)
    assert peaks[1] - peaks[0] < 8 * 1024


def peak_of_receiving(place: Path, data: bytes) -> int:
    """The most memory that an upload took, in KiB."""
    with receiving(place, announced(data)) as process:
        assert answer(process) == done(data)
        status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def peak_of_get(place: Path) -> int:
    """The most memory that a download took, in KiB."""
    done = run("get", place, TOP, after=_PEAK)
    assert done.returncode == 0, done.stderr
    return int(done.stderr)


# --- files: probe


def probing(*targets: tuple[str, str, int, str], wait_s: float = 0.3) -> bytes:
    """The request to probe."""
    return json.dumps({"probe": targets, "seconds": wait_s}).encode() + b"\n"


def reply_of(*before: str, request: bytes, **environment: str) -> tuple[bytes, bytes]:
    """What the program says of a request, on stdout and stderr; stdin stays open until it has."""
    words = [*before, *command("files", "/nowhere")]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment or None
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with suppress(BrokenPipeError):
            process.stdin.write(request)
            process.stdin.flush()
        said = process.stdout.readline()
        process.kill()
        return said, process.stderr.read()


def probe(*targets: tuple[str, str, int, str], wait_s: float = 0.3, **environment: str) -> list[str]:
    """What answers."""
    said, _ = reply_of(request=probing(*targets, wait_s=wait_s), **environment)
    found: list[str] = json.loads(said)["answered"]
    return found


HOSTS = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


def bound(host: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """A socket on a free port."""
    one = socket.socket(HOSTS[host], kind)
    one.bind((host, 0))
    return one


@pytest.mark.parametrize("host", HOSTS)
def test_a_listener_answers(host: str) -> None:
    """A connection is an answer, and is named with its address."""
    with bound(host) as one:
        one.listen()
        port = one.getsockname()[1]
        assert probe(("a node", host, port, "tcp")) == [f"a node ({host}:{port}, tcp)"]


@pytest.mark.parametrize("host", HOSTS)
def test_a_reset_is_an_answer(host: str) -> None:
    """A refused connection proves that packets arrive there and come back."""
    with bound(host) as one:
        port = one.getsockname()[1]  # bound, and does not listen
        assert probe(("a node", host, port, "tcp")) == [f"a node ({host}:{port}, tcp)"]


def test_a_name_server_answers() -> None:
    """A datagram that comes back is an answer."""
    with bound("127.0.0.1", socket.SOCK_DGRAM) as one:
        one.settimeout(20)

        def serve() -> None:
            query, asker = one.recvfrom(512)
            one.sendto(query, asker)

        thread = threading.Thread(target=serve)
        thread.start()
        found = probe(("names", "127.0.0.1", one.getsockname()[1], "udp"), wait_s=5)
        thread.join()
    assert len(found) == 1


def test_a_probe_that_can_open_no_connection_fails() -> None:
    """Where not even the probe's own listener answers, it does not report a closed network."""
    alone = ["unshare", "--user", "--map-root-user", "--net"]  # with a loopback that is down
    if subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may make no network namespace")
    said, words = reply_of(*alone, request=probing())
    assert said == b""
    assert b"could not connect to itself" in words


def test_silence_is_no_answer() -> None:
    """Who takes packets and says nothing does not answer; neither does a place to which there is no way."""
    with ExitStack() as stack:
        silent = stack.enter_context(bound("127.0.0.1", socket.SOCK_DGRAM))
        full = stack.enter_context(bound("127.0.0.1"))
        full.listen(0)
        address = full.getsockname()
        for _ in range(3):  # what finds the queue full is dropped, as a policy drops it
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        assert (
            probe(
                ("names", "127.0.0.1", silent.getsockname()[1], "udp"),
                ("a node", *address, "tcp"),
                ("nowhere", "255.255.255.255", 80, "tcp"),
            )
            == []
        )


def test_a_closed_udp_port_is_no_answer() -> None:
    """An ICMP message about a datagram is how a policy refuses, too."""
    with bound("127.0.0.1", socket.SOCK_DGRAM) as one:
        port = one.getsockname()[1]
    assert probe(("names", "127.0.0.1", port, "udp")) == []


def test_the_api_server_is_asked_wherever_it_is() -> None:
    """The address of the API server is the pod's own knowledge, from its environment."""
    with bound("127.0.0.1") as one:
        one.listen()
        port = str(one.getsockname()[1])
        found = probe(
            ("the API server", "API SERVER", 0, "tcp"),
            KUBERNETES_SERVICE_HOST="127.0.0.1",
            KUBERNETES_SERVICE_PORT=port,
        )
    assert f"the API server (127.0.0.1:{port}, tcp)" in found


_RULES = """
ip link set lo up
{tables} -A OUTPUT -p tcp --dport 9 -j REJECT --reject-with {kind}
"""


@pytest.mark.parametrize(
    ("tables", "kind", "host"),
    [
        ("iptables", "icmp-port-unreachable", "127.0.0.1"),
        ("iptables", "icmp-admin-prohibited", "127.0.0.1"),
        ("ip6tables", "icmp6-port-unreachable", "::1"),
        ("ip6tables", "icmp6-adm-prohibited", "::1"),
    ],
)
def test_a_policy_that_rejects_is_no_answer(tables: str, kind: str, host: str) -> None:
    """A refusal by ICMP, as network plugins send it that enforce a policy so, is told apart from the other end's."""
    if shutil.which(tables) is None or shutil.which("ip") is None:
        pytest.skip(f"{tables} or ip is not installed")
    namespaces = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    script = _RULES.format(tables=tables, kind=kind) + 'exec "$@"'
    said, words = reply_of(
        *namespaces, "sh", "-ec", script, "sh", request=probing(("a node", host, 9, "tcp"))
    )
    if not said:
        pytest.skip(f"no rules can be set here: {words.decode().strip()[-200:]}")
    assert json.loads(said)["answered"] == []


_GATEWAYS = """
ip link set lo up
ip link add pod type veth peer name other
ip address add 10.9.0.2/24 dev pod
ip link set pod up
ip link set other up
ip route add default via 10.9.0.1
ip address add 10.9.0.1/32 dev lo
exec "$@"
"""


def test_the_gateway_is_asked_by_its_own_address() -> None:
    """The pod's default gateway, often the node, is found in the kernel's table."""
    namespaces = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    words = [*namespaces, "sh", "-ec", _GATEWAYS, "sh"]
    if subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may make no network namespace, or ip is not installed")
    said, _ = reply_of(*words, request=probing(("the gateway", "GATEWAY", 22, "tcp")))
    assert json.loads(said)["answered"] == ["the gateway (10.9.0.1:22, tcp)"]
