"""What programs inside try in order to get out: each kind of sandbox is tried by one program that tries all of it."""

import json
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.promises.needs import need_docker
from tests.promises.product import Product

PROGRAM = Path(__file__).with_name("attempts.py").read_text()
CALLS = ["chroot", "mount", "personality", "process_vm_readv", "ptrace", "sethostname", "umount2", "unshare"]
HARMLESS = {
    *("console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm"),
    *("stderr", "stdin", "stdout", "tty", "urandom", "zero"),
}


@pytest.fixture(scope="module", params=["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)])
def found(request: pytest.FixtureRequest, make_product: Callable[[], Product]) -> dict[str, Any]:
    """What came of each attempt."""
    kind = str(request.param)
    image = ("--image", need_docker()) if kind == "docker" else ()
    product = make_product()
    beside = product.place / "beside"
    beside.mkdir(mode=0o755)
    (beside / "file").write_text("not for inside")
    (product.home / ".ssh").mkdir()
    (product.home / ".ssh" / "id_rsa").write_text("not for inside")
    product.exec("true")
    paths = {
        "home": product.home,
        "key": product.home / ".ssh" / "id_rsa",
        "state": product.state,
        "beside": beside / "file",
        "caller's home": Path.home() / ".bashrc",
        "root's home": "/root",
        "environment": f"/proc/{os.getpid()}/environ",
    }
    abstract = f"\0promises-{os.getpid()}-{kind}"
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as other:
        server.bind(("127.0.0.1", 0))
        other.bind(abstract)
        for each in (server, other):
            each.listen()
            threading.Thread(target=accept, args=[each], daemon=True).start()
        facts = {
            "paths": {name: str(path) for name, path in paths.items()},
            "port": server.getsockname()[1],
            "abstract": abstract,
        }
        ended = product(
            *("exec", "--sandbox", kind, *image, "--", "python3", "-c", PROGRAM, json.dumps(facts)),
            CALLERS_SECRET="not-for-inside",
        )
    assert ended.code == 0, ended
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def accept(server: socket.socket) -> None:
    """Take connections until the socket is closed."""
    while True:
        try:
            server.accept()[0].close()
        except OSError:
            return


@pytest.mark.parametrize(
    "name", ["home", "key", "state", "beside", "caller's home", "root's home", "environment"]
)
def test_files_of_the_host(found: dict[str, Any], name: str) -> None:
    """Neither homes nor keys, records, neighbours of the workspace or other processes' files can be read inside."""
    assert found[f"path {name}"] in {"refused", "[]"}


@pytest.mark.parametrize("name", ["/etc/shadow", "/proc/kcore", "/dev/mem", "/proc/kmsg", "/dev/kmsg"])
def test_secrets_of_the_machine(found: dict[str, Any], name: str) -> None:
    """Neither the machine's passwords nor its memory nor its log can be read inside."""
    assert found[f"read {name}"] in {"refused", "0"}


@pytest.mark.parametrize("name", ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
def test_capabilities(found: dict[str, Any], name: str) -> None:
    """All sets of capabilities are empty inside."""
    assert found["status"][name] == ["0" * 16]


def test_no_new_privileges(found: dict[str, Any]) -> None:
    """Nothing inside gains privileges, and a filter of system calls is on."""
    assert found["status"]["NoNewPrivs"] == ["1"]
    assert found["status"]["Seccomp"] == ["2"]


def test_nobody_is_root(found: dict[str, Any]) -> None:
    """Inside nobody is root, nor can become it."""
    assert "0" not in found["status"]["Uid"] + found["status"]["Gid"] + found["status"]["Groups"]
    assert (found["setuid"], found["setgid"]) == ("refused", "refused")


@pytest.mark.parametrize("name", CALLS)
def test_system_calls(found: dict[str, Any], name: str) -> None:
    """Calls that mount, make namespaces, trace, administer or reach other processes' memory are refused."""
    assert found[f"call {name}"] in {"EPERM", "ENOSYS"}


def test_kernel_settings(found: dict[str, Any]) -> None:
    """No setting of the kernel can be written inside, nor a file that has the kernel act."""
    assert found["opened sysctls"] == []
    assert found["triggers"] == []


def test_the_system_cannot_be_written(found: dict[str, Any]) -> None:
    """Nothing of the system's directories can be written inside."""
    assert found["made"] == []


def test_processes_of_the_host(found: dict[str, Any]) -> None:
    """No process of the host is seen inside, nor its environment."""
    assert not any("pytest" in line for line in found["processes"])
    assert len(found["processes"]) < 20
    assert "not-for-inside" not in found["environments"]


def test_interfaces(found: dict[str, Any]) -> None:
    """Inside there is a loopback interface and nothing else, and no route."""
    assert found["interfaces"] == ["lo"]
    assert found["routes"] <= 0


@pytest.mark.parametrize("name", ["web", "host", "abstract", "metadata"])
def test_connections(found: dict[str, Any], name: str) -> None:
    """From inside neither the web nor a server of the host nor its sockets can be reached."""
    assert found[f"connect {name}"] == "refused"


def test_names(found: dict[str, Any]) -> None:
    """No name is resolved for anybody inside."""
    assert found["resolve"] == "refused"


@pytest.mark.parametrize("name", ["raw", "packet", "vsock", "alg", "audit", "netfilter", "sctp"])
def test_sockets(found: dict[str, Any], name: str) -> None:
    """Sockets that forge traffic or reach seldom-used parts of the kernel cannot be opened inside."""
    assert found[f"socket {name}"] == "refused"


def test_devices(found: dict[str, Any]) -> None:
    """There are no devices inside but harmless ones, none can be made, and no engine's socket is there."""
    assert set(found["devices"]) <= HARMLESS
    assert found["device"] == "refused"
    assert found["engines"] == []


def test_the_first_process_cannot_be_killed(found: dict[str, Any]) -> None:
    """A signal to the first process inside does not end the sandbox."""
    assert found["after that"] == "alive"


def test_everything_inside_is_killed(product: Product) -> None:
    """A command that kills all that it can is recorded to its end, and the next one finds a sandbox that works."""
    product.shell("kill -9 -1")
    assert product.record()[-1]["event"] == "journal.sealed"
    product.does("exec", "--", "true")


def test_the_terminal_is_not_typed_into(found: dict[str, Any]) -> None:
    """Nothing inside types into the user's terminal."""
    assert found["type"] == "refused"
