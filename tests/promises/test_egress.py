"""What can be reached from inside: nothing, hosts that were granted, services that were forwarded."""

import signal
from collections.abc import Callable, Iterator

import pytest
from tests.promises.needs import Fence
from tests.promises.product import Ended, Product, processes_with, read_until, says
from tests.promises.servers import Server, serving

ASK = """
import os, socket, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ.get("HTTP_PROXY") or "http://127.0.0.1:3128")
for words in sys.argv[1:]:
    with socket.create_connection((proxy.hostname, proxy.port), 20) as connection:
        connection.sendall(words.encode().decode("unicode_escape").encode("latin-1"))
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
                if b"page" in answer or b" 403 " in answer[:16] and b"\\r\\n\\r\\n" in answer:
                    break
        except ConnectionResetError:
            pass
    print(answer.split(b"\\r\\n")[0].decode(), b"page" in answer)
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """A web server on loopback."""
    with serving() as made:
        yield made


def get(url: str, method: str = "GET", more: str = "") -> str:
    """A request to a proxy, as `ASK` takes it."""
    host = url.split("/")[2]
    return rf"{method} {url} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n"


def ask(product: Product, options: tuple[str, ...], *requests: str) -> list[str]:
    """The first lines of answers to requests that a program inside makes of the proxy."""
    ended = product.does("exec", *options, "--", "python3", "-c", ASK, *requests)
    return ended.out.splitlines()


def test_a_granted_host_is_reached(product: Product, fence: Fence, server: Server) -> None:
    """A host that `--allow` names is reached, others are refused with 403; both are recorded with rule and bytes."""
    allowed = ("--allow", f"127.0.0.1:{server.port}")
    lines = ask(product, (*fence, *allowed), get(f"{server.url}/file"), get("http://other.example/"))
    assert [line.split()[1] for line in lines] == ["200", "403"]
    assert [got.path for got in server.got] == ["/file"]
    decided = [(one["host"], one["allowed"]) for one in product.recorded("egress.decided")]
    assert decided == [("127.0.0.1", True), ("other.example", False)]
    assert product.recorded("egress.closed")[0]["received_bytes"] > len(server.body)
    assert product.recorded("sandbox.created")[0]["policy"]["egress"] == [f"allow 127.0.0.1:{server.port}"]
    assert product.recorded("policy.loosened") == []


def test_refusals_are_told(shared: Product) -> None:
    """What was refused is named at the command's end, with how it would be allowed."""
    ended = shared("exec", "--allow", "a.example", "--", "python3", "-c", ASK, get("http://other.example/"))
    (line,) = ended.err.strip().splitlines()
    assert "other.example" in line
    assert "--allow" in line


def test_nothing_by_default(shared: Product) -> None:
    """Without a grant there is no proxy inside, and no variable that names one."""
    assert shared.does("exec", "--", "sh", "-c", "env | grep -ci proxy; true").out.strip() == "0"
    assert shared.exec("python3", "-c", ASK, get("http://a.example/")).code != 0


@pytest.fixture(scope="module")
def variables(shared: Product) -> set[str]:
    """The names of variables that are set inside, where there is a grant."""
    lines = shared.does("exec", "--allow", "a.example", "--", "env").out.splitlines()
    return {name for name, _, value in (line.partition("=") for line in lines) if value}


@pytest.mark.parametrize("name", ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY"])
def test_variables(variables: set[str], name: str) -> None:
    """With a grant the usual variables name the proxy inside."""
    assert name in variables


REFUSED = {
    "port": "http://10.9.8.7:1/",
    "address": "http://127.0.0.1:{port}/",
    "another host": "http://other.example/",
    "address in another form": "http://0x7f.1:{port}/",
    "address as a number": "http://2130706433:{port}/",
    "mapped address": "http://[::ffff:127.0.0.1]:{port}/",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "user in the address": "http://127.0.0.1:{port}@other.example/",
}


def test_what_no_rule_names(product: Product, server: Server) -> None:
    """Addresses that no rule names are refused in each of their spellings; so are metadata services and tricks."""
    urls = [url.format(port=server.port) for url in REFUSED.values()]
    requests = [rf"GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" for url in urls]
    lines = ask(product, ("--allow", "10.9.8.7", "--allow", "a.example"), *requests)
    assert len(lines) == len(REFUSED)
    assert not any("200" in line for line in lines)
    assert server.got == []


def test_tunnels(product: Product, server: Server) -> None:
    """CONNECT opens a tunnel to a port that was named, and to no other."""
    tunnel = rf"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"
    other = r"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n"
    lines = ask(product, ("--allow", f"127.0.0.1:{server.port}"), tunnel, other)
    assert [line.split()[1] for line in lines] == ["200", "403"]
    assert len(server.got) == 1


def test_methods_and_paths(product: Product, server: Server) -> None:
    """A rule with methods and paths lets nothing else of plain HTTP pass."""
    rule = {"host": "127.0.0.1", "ports": [server.port], "methods": ["GET"], "paths": ["/open/*"]}
    product.configure(product.settings, egress={"allow": [rule]})
    requests = [
        get(f"{server.url}/open/x"),
        get(f"{server.url}/closed"),
        get(f"{server.url}/open/x", "POST", r"Content-Length: 0\r\n"),
        get(f"{server.url}/open/../closed"),
    ]
    lines = ask(product, (), *requests)
    assert [line.split()[1] == "200" for line in lines] == [True, False, False, False]
    assert [(got.method, got.path) for got in server.got] == [("GET", "/open/x")]


def test_bytes_are_bounded(product: Product) -> None:
    """A rule's `max_bytes` bounds what passes both ways together."""
    with serving(body=b"x" * 500_000 + b"page") as server:
        rule = {"host": "127.0.0.1", "ports": [server.port], "max_bytes": "100k"}
        product.configure(product.settings, egress={"allow": [rule]})
        lines = ask(product, (), get(f"{server.url}/a"))
    assert not any(line.endswith("True") for line in lines)


def test_open_is_told(product: Product) -> None:
    """`--allow open` is told on stderr and recorded as a loosening."""
    assert "--allow" in product.does("exec", "--allow", "open", "--", "true").err
    assert [each["what"] for each in product.recorded("policy.loosened")] == [
        "the sandbox can reach every public host"
    ]


def test_an_agent_is_told_of_refusals(product: Product) -> None:
    """An agent hears with a command's result what was refused to it."""
    command = "python3 -c \"import urllib.request as r; r.urlopen('http://other.example/')\""
    turns = [says("", command), {"expect": {"last_tool_result": "other.example"}, "text": "I see."}]
    assert product.run(product.script(*turns), "--allow", "a.example").ends_as("unverified")


def test_forward(product: Product, fence: Fence, server: Server) -> None:
    """`--forward` shows a service of this side inside at 127.0.0.1 and by its name, and each connection is recorded."""
    program = "import urllib.request as r\nfor h in ('web', '127.0.0.1'): print(r.urlopen(f'http://{h}:8000/').read())"
    words = (*fence, "--forward", f"web:8000=127.0.0.1:{server.port}", "--", "python3", "-c", program)
    assert product.does("exec", *words).out == "b'page\\n'\n" * 2
    assert len(product.recorded("forward.opened")) == 2
    assert product.recorded("forward.closed")[0]["received_bytes"] > len(server.body)


def test_a_service_that_is_away(product: Product) -> None:
    """A forward whose service does not answer is named at the command's end, with the reason, and no grant."""
    program = "import socket; s = socket.create_connection(('127.0.0.1', 8000)); s.recv(1)"
    ended = product("exec", "--forward", "db:8000=127.0.0.1:1", "--", "python3", "-c", program)
    last = ended.err.strip().splitlines()[-1]
    assert "db:8000" in last
    assert "Connection refused" in last
    assert "--allow" not in ended.err


def test_only_what_was_forwarded(shared: Product, server: Server) -> None:
    """Beside a forward nothing else of this side can be reached."""
    program = f"import socket; socket.create_connection(('127.0.0.1', {server.port}))"
    ended = shared("exec", "--forward", f"web:8000=127.0.0.1:{server.port}", "--", "python3", "-c", program)
    assert ended.code != 0
    assert server.got == []


@pytest.fixture(scope="module")
def box(make_product: Callable[[], Product]) -> Iterator[Product]:
    """A product with a standing sandbox `box`, of which each test opens and closes hosts of its own."""
    product = make_product()
    product.does("sandbox create", "box")
    yield product
    product.does("sandbox rm", "box")


def ask_from_box(box: Product, *requests: str) -> Ended:
    """Make requests from inside it."""
    return box("sandbox exec", "box", "--", "python3", "-c", ASK, *requests)


def test_changes_of_a_standing_sandbox(box: Product, server: Server) -> None:
    """`sandbox allow` opens a host while a sandbox stands, `sandbox deny` closes it again; both are recorded."""
    host = f"127.0.0.1:{server.port}"
    files = sorted(box.project.rglob("*"))
    codes = []
    for change in (None, "sandbox allow", "sandbox deny"):
        if change:
            box.does(change, "box", host)
            is_shown = f'"allow {host}"' in box.does("sandbox inspect", "box").out
            assert is_shown is (change == "sandbox allow")
        codes.append(ask_from_box(box, get(f"{server.url}/x")).out.split()[1])
    assert codes == ["403", "200", "403"]
    changes = [each for each in box.recorded("egress.changed") if host in str(each)]
    assert [each["action"] for each in changes] == ["allow", "deny"]
    assert sorted(box.project.rglob("*")) == files


def test_refusals_of_a_standing_sandbox_are_told(box: Product) -> None:
    """A command there is told once what was refused to it and how it is allowed, and the next one nothing."""
    box.does("sandbox allow", "box", "allowed.invalid")
    refused = get("http://other.example/")
    first, second, last = ask_from_box(box, refused, refused, get("http://allowed.invalid/")).err.splitlines()
    assert "other.example" in first
    assert "allowed.invalid" in second
    assert "sandbox allow box" in last
    assert ask_from_box(box).stderr == b""


def test_denials_of_a_standing_sandbox_are_told(box: Product) -> None:
    """What was denied there is named with what takes the denial back, which does."""
    request = get("http://denied.invalid/")
    box.does("sandbox deny", "box", "denied.invalid")
    first, last = ask_from_box(box, request).err.splitlines()
    assert "refused: denied.invalid" in first
    assert "sandbox allow box" in last
    box.does("sandbox allow", "box", "denied.invalid")
    assert "refused" not in ask_from_box(box, request).err


def test_what_was_open_is_cut_off(box: Product, server: Server) -> None:
    """A denial cuts off connections that are open."""
    host = f"127.0.0.1:{server.port}"
    program = (
        "import socket; s = socket.create_connection(('127.0.0.1', 3128)); "
        f"s.sendall(b'CONNECT {host} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n'); "
        "print(s.recv(100)[:12], flush=True); s.recv(100)"
    )
    box.does("sandbox allow", "box", host)
    with box.started("sandbox exec", "box", "--", "python3", "-c", program) as process:
        read_until(process.stdout, b"200")
        box.does("sandbox deny", "box", host)
        process.wait(30)


def test_the_proxy_ends_with_the_command(product: Product) -> None:
    """No process of a grant is left after an interrupt."""
    with product.started("exec", "--allow", "a.example", "--", "sh", "-c", "echo in; sleep 4249") as process:
        read_until(process.stdout, b"in")
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert not processes_with(b"sleep\x004249")
