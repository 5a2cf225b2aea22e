"""The standby itself: one of them, for its own user and for commands like itself, never a hindrance and never stale."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.standby.conftest import COMMAND, Lab

import ringfence
from ringfence.cli.standby.place import standby_dir
from ringfence.config.paths import state_dir

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "env",
    [
        {"RINGFENCE_STATE_DIR": "/a/b"},
        {"RINGFENCE_STATE_DIR": "some/../where"},
        {"XDG_STATE_HOME": "/x"},
        {"XDG_STATE_HOME": "x"},
        {"XDG_STATE_HOME": ""},
        {},
    ],
    ids=str,
)
def test_it_is_sought_in_the_state_directory(env: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    """What a command reckons without its libraries is what they would say."""
    for name in ("RINGFENCE_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert Path(standby_dir()) == Path(os.path.abspath(state_dir()), "standby")  # noqa: PTH100 -- links stay


def test_two_starts_make_one(without: Lab):
    """Both succeed, or one says that the other is at it; one listens, for as long as it was told at first."""
    lab = without
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda _: lab.run("standby", "start"), range(2)))
    again = lab.run("standby", "start", "--idle", "2h")
    ended = lab.run("standby", "stop")
    assert 0 in [each.returncode for each in done]
    assert (again.returncode, "already" in again.stderr, "after 1h" in again.stderr) == (0, True, True)
    assert str(lab_pid(again.stderr)) in ended.stderr
    assert lab.run("standby", "status").returncode == 1


def lab_pid(line: str) -> int:
    """The process that a line names."""
    return int(line.partition("process ")[2].partition(";")[0])


def test_twenty_commands_at_once(shared: Lab, place: Path):
    """Each does its own, once."""
    before = len(list((shared.state / "runs").iterdir())) if (shared.state / "runs").is_dir() else 0
    folders = [place / str(number) for number in range(20)]
    for folder in folders:
        folder.mkdir()
        if os.getuid() == 0:
            os.chown(folder, 12_345, 12_345)
    with ThreadPoolExecutor(20) as threads:
        done = list(
            threads.map(lambda each: shared.run("exec", "-C", each, "--", "sh", "-c", "echo $$"), folders)
        )
    assert [each.returncode for each in done] == [0] * 20, [each.stderr for each in done]
    assert len(list((shared.state / "runs").iterdir())) == before + 20


def test_no_secret_is_in_it(without: Lab, place: Path):
    """Neither those of whoever starts it, nor those of the commands that came before are in its memory."""
    starter, caller = f"starter-{os.urandom(8).hex()}", f"caller-{os.urandom(8).hex()}"
    lab = Lab(without.state, {"ANTHROPIC_API_KEY": starter})
    assert lab.run("standby", "start").returncode == 0
    pid = lab.status()["pid"]
    done, served = lab.served(
        lambda: lab.run("exec", "-C", place, "--", "true", env={"ANTHROPIC_API_KEY": caller})
    )
    assert (served, done.returncode) == (1, 0)
    assert starter.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    memory = _memory(pid)
    assert (starter.encode() in memory, caller.encode() in memory) == (False, False)
    assert b"ringfence.cli.standby" in memory


def _memory(pid: int) -> bytes:
    parts = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if rights.startswith("rw"):
                begin, end = (int(each, 16) for each in span.split("-"))
                try:
                    file.seek(begin)
                    parts.append(file.read(end - begin))
                except OSError:
                    continue
    return b"".join(parts)


def test_one_that_stands_still_holds_nothing_up(own: Lab, place: Path):
    """The command starts by itself."""
    pid = own.status()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = own.run("exec", "-C", place, "--", "echo", "by itself")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (done.returncode, done.stdout) == (0, "by itself\n")
    assert own.status()["served"] == 0


def test_a_dead_one_holds_nothing_up(own: Lab, place: Path):
    """Its socket is still there; nobody listens, and another may start."""
    os.kill(own.status()["pid"], signal.SIGKILL)
    done = own.run("exec", "-C", place, "--", "echo", "by itself")
    assert (done.returncode, done.stdout) == (0, "by itself\n")
    assert own.run("standby", "start").returncode == 0
    assert own.status()["served"] == 0


@pytest.mark.parametrize("answer", [b"", b"h", b"nonsense" * 100], ids=["nothing", "half", "nonsense"])
def test_garbage_holds_nothing_up(without: Lab, place: Path, answer: bytes):
    """Whatever answers there in the standby's place."""
    lab = without
    (lab.state / "standby").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(lab.state / "standby")
        listening.bind("socket")
        os.chdir(before)
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        done = lab.run("exec", "-C", place, "--", "echo", "by itself")
        thread.join()
    assert (done.returncode, done.stdout) == (0, "by itself\n")


def test_a_place_that_others_may_enter_is_not_used(own: Lab, place: Path):
    """A secret goes only where nobody else can listen."""
    (own.state / "standby").chmod(0o711)
    done = own.run("exec", "-C", place, "--", "true")
    (own.state / "standby").chmod(0o700)
    assert (done.returncode, own.status()["served"]) == (0, 0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_users_place_is_not_used(own: Lab, place: Path):
    """Whoever listens there would be sent what the command has."""
    os.chown(own.state / "standby", 12_345, 12_345)
    done = own.run("exec", "-C", place, "--", "true")
    os.chown(own.state / "standby", 0, 0)
    assert (done.returncode, own.status()["served"]) == (0, 0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_another_user_is_not_served(own: Lab):
    """Not even one whom the file system lets in."""
    (own.state / "standby").chmod(0o711)
    (own.state / "standby" / "socket").chmod(0o666)
    for folder in (own.state, *own.state.parents):
        if folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o001)
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(30); s.connect(sys.argv[1]);"
        " print(s.recv(1))"
    )
    short = Path("/proc/self/cwd/socket")
    done = subprocess.run(
        ["python3", "-c", program, str(short)], cwd=own.state / "standby", user=12_345, group=12_345,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (own.state / "standby").chmod(0o700)
    assert done.stdout == "b''\n", done.stderr
    assert own.status()["served"] == 0


OTHERWISE = {
    "no new privileges": (["setpriv", "--no-new-privs"], "NoNewPrivs is not the standby's"),
    "niceness": (["nice", "-n", "5"], "scheduling is not the standby's"),
    "processors": (["taskset", "-c", "0"], "Cpus_allowed is not the standby's"),
    "language": (["env", "LANGUAGE=de"], "the variable LANGUAGE is not the standby's"),
    "Python's variables": (
        ["env", "PYTHONWARNINGS=ignore"],
        "its Python is not the standby's, or was started otherwise",
    ),
    "a variable that was read": (
        ["env", "ANTHROPIC_LOG=info"],
        "the variable ANTHROPIC_LOG is not the standby's",
    ),
    "how the kernel runs it": (
        ["setarch", "--addr-no-randomize"],
        "personality is not the standby's",
    ),
    "a namespace": (["unshare", "--uts"], "uts namespace is not the standby's"),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_is_otherwise_starts_by_itself(shared: Lab, place: Path, case: str):
    """What cannot be handed over is as it would be without a standby, and the reason is told."""
    before, why = OTHERWISE[case]
    if before[0] == "unshare" and os.getuid() != 0:
        pytest.skip("only root can make one")
    words = [*before, *COMMAND, "exec", "-C", str(place), "--", "echo", "by itself"]
    done, served = shared.served(
        lambda: subprocess.run(
            words,
            env=shared.environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    )
    assert (served, done.returncode, done.stdout) == (0, 0, "by itself\n"), done.stderr
    assert shared.status()["last_refusal"] == why


def test_it_serves_where_there_is_no_language(without: Lab, place: Path):
    """As on servers and in containers: Python sets one for its children, and is started otherwise with it."""
    languages = ("LANG", "LC_", "PYTHONUTF8")
    bare = {name: value for name, value in without.environment.items() if not name.startswith(languages)}

    def do(*words: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*COMMAND, *map(str, words)], env=bare, capture_output=True, text=True, check=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    do("standby", "start")
    try:
        do("exec", "-C", place, "--", "true")
        told = json.loads(do("standby", "status", "--json").stdout)["standby"]
    finally:
        do("standby", "stop", "--now")
    assert (told["served"], told["last_refusal"]) == (1, None)


def test_it_can_be_left_out(shared: Lab, place: Path):
    """By a variable, for one command."""
    done, served = shared.served(
        lambda: shared.run("exec", "-C", place, "--", "true", env={"RINGFENCE_STANDBY": "0"})
    )
    assert (served, done.returncode) == (0, 0)


def test_changed_code_ends_it(without: Lab, tmp_path: Path, place: Path):
    """A file of the package that is newer than what was loaded: the command starts by itself, from the new one."""
    copied = tmp_path / "copied" / "ringfence"
    shutil.copytree(Path(ringfence.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    lab = Lab(without.state, {"PYTHONPATH": str(copied.parent)})
    started = lab.run("standby", "start")
    assert started.returncode == 0, started.stderr
    _, served = lab.served(lambda: lab.run("exec", "-C", place, "--", "true"))
    with (copied / "cli" / "execute.py").open("a") as file:
        file.write('\nprint("new")\n')
    done = lab.run("exec", "-C", place, "--", "true")
    assert (served, done.stdout) == (1, "new\n")
    assert lab.run("standby", "status").returncode == 1


def test_it_ends_when_nobody_wants_it(without: Lab):
    """After the time that was given."""
    lab = without
    started = lab.run("standby", "start", "--idle", "1s")
    process = os.pidfd_open(lab_pid(started.stderr))
    ready, _, _ = select.select([process], [], [], 30)
    os.close(process)
    assert ready
    assert lab.run("standby", "status").returncode == 1


def test_an_ended_one_leaves_what_runs(own: Lab, place: Path):
    """Its commands go on; it waits for them."""
    process = own.start("exec", "-C", place, "--", "sh", "-c", "echo begun; cat", stdin=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    assert own.run("standby", "stop").returncode == 0
    assert own.run("standby", "status").returncode == 1
    out, _ = process.communicate("more", timeout=60)
    assert (process.returncode, out) == (0, "more")


def test_it_is_out_of_reach_inside(shared: Lab, place: Path):
    """An agent cannot ask it for anything: its place is not there."""
    socket_file = shared.state / "standby" / "socket"
    assert socket_file.exists()
    program = (
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ntry:\n s.connect(sys.argv[1])\n"
        "except OSError as e:\n print(type(e).__name__)\n"
    )
    done = shared.run("exec", "-C", place, "--", "python3", "-c", program, socket_file)
    assert done.stdout == "FileNotFoundError\n", done.stderr
