"""Standing sandboxes: made once, used by many commands, removed by name."""

import os
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from tests.promises.needs import Fence, need_docker
from tests.promises.product import Ended, Product, poll, processes_with, read_until


@pytest.fixture(scope="module")
def standing(make_product: Callable[[], Product]) -> Iterator[Product]:
    """A product with a standing sandbox `work`, which the module's tests share."""
    product = make_product()
    product.does("sandbox create", "work", "--setup", "echo ready > /tmp/set-up", "--env", "GIVEN=yes")
    yield product
    product("sandbox rm", "work")


def inside(product: Product, script: str, *options: str) -> Ended:
    """Run a line of shell in it."""
    return product("sandbox exec", *options, "work", "--", "sh", "-c", script)


def test_streams_and_exit_code(standing: Product) -> None:
    """A command's streams and exit code are passed on."""
    ended = inside(standing, "echo out; echo err >&2; exit 3")
    assert (ended.code, ended.stdout, ended.stderr) == (3, b"out\n", b"err\n")


def test_unknown_program(standing: Product) -> None:
    """A program that is not there ends with 127, as in a shell."""
    assert standing("sandbox exec", "work", "no-such-program").code == 127


def test_setup_and_environment_last(standing: Product) -> None:
    """Set-up commands ran once, and variables given at the start hold for each command."""
    assert inside(standing, "cat /tmp/set-up; echo $GIVEN").out.split() == ["ready", "yes"]


def test_commands_find_what_others_left(standing: Product) -> None:
    """A command finds files outside of the workspace, and processes, that another one left."""
    inside(standing, "echo left > /tmp/left; sleep 4245 > /dev/null 2>&1 &")
    ended = inside(standing, "cat /tmp/left; grep -ls 424[5] /proc/[0-9]*/cmdline | head -n 1")
    assert ended.out.splitlines()[0] == "left"
    assert "/proc/" in ended.out


def test_environment_of_one_command(standing: Product) -> None:
    """A variable given to one command is not the next one's."""
    assert inside(standing, "echo [$ONE]", "--env", "ONE=1").out == "[1]\n"
    assert inside(standing, "echo [$ONE]").out == "[]\n"


def test_workspace_is_at_its_path(standing: Product) -> None:
    """A command begins in the workspace, at its own path, and reads and writes the files themselves."""
    standing.write("from-outside", "seen\n")
    ended = inside(standing, f"pwd; cat {standing.project}/from-outside; echo x > by-standing")
    assert ended.out == f"{standing.project}\nseen\n"
    assert (standing.project / "by-standing").read_text() == "x\n"


def test_input_only_with_interactive(standing: Product) -> None:
    """With `-i` input is passed on, byte by byte; without it a command gets none."""
    words = ("work", "--", "cat")
    sent = bytes(range(256)) * 4000
    assert standing("sandbox exec", "-i", *words, stdin=sent).stdout == sent
    assert standing("sandbox exec", *words, stdin=sent).stdout == b""


def test_timeout(standing: Product) -> None:
    """`--timeout` ends a command with 124, and the sandbox goes on."""
    ended = inside(standing, "sleep 600", "--timeout", "300ms")
    assert ended.ends_as("timed out")
    assert "--timeout" in ended.err
    assert inside(standing, "true").code == 0


def test_interrupted_command(standing: Product) -> None:
    """A command that is interrupted is killed with what it started, and the sandbox goes on."""
    with standing.started("sandbox exec", "work", "--", "sh", "-c", "echo in; sleep 4246") as process:
        read_until(process.stdout, b"in")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert inside(standing, "grep -ls 424[6] /proc/[0-9]*/cmdline").out == ""


def test_list(standing: Product) -> None:
    """`sandbox ls --json` lists it with its state, kind and workspace."""
    (row,) = standing.does("sandbox ls", "--json").json
    assert (row["name"], row["state"], row["backend"]) == ("work", "running", "bubblewrap")
    assert row["workspace"] == str(standing.project)
    assert "work" in standing.does("sandbox ls").out


def test_inspect(standing: Product) -> None:
    """`sandbox inspect` prints its kind and its policy: no network, its limits, nobody's root."""
    found = standing.does("sandbox inspect", "work").json
    assert found["name"] == "work"
    assert found["facts"]["backend"] == "bubblewrap"
    assert found["policy"]["network"] == "none"
    assert found["policy"]["limits"]["pids"] == 512
    assert found["policy"]["uid"] != 0
    assert found["run"] in standing.runs()


def test_stats(standing: Product) -> None:
    """`sandbox stats --json` says what it uses."""
    (row,) = standing.does("sandbox stats", "--json").json
    assert row["name"] == "work"
    assert row["pids"] >= 1
    assert row["memory_bytes"] > 100_000


def test_copy_in_and_out(standing: Product) -> None:
    """`sandbox cp` brings files and directories in and out, byte by byte."""
    tree = standing.place / "tree"
    (tree / "below").mkdir(parents=True)
    data = bytes(range(256)) * 2000
    (tree / "below" / "file").write_bytes(data)
    standing.does("sandbox cp", tree, "work:/tmp/tree")
    standing.does("sandbox cp", tree, "work:/tmp/tree/below")
    assert inside(standing, "ls /tmp/tree /tmp/tree/below").out.split()[-2:] == ["file", "tree"]
    assert inside(standing, "wc -c < /tmp/tree/below/file").out.strip() == str(len(data))
    standing.does("sandbox cp", "work:/tmp/tree", standing.place / "back")
    assert (standing.place / "back" / "below" / "file").read_bytes() == data


def test_links_are_not_copied_out(standing: Product) -> None:
    """A link is left out and named, with exit code 1; the rest is copied."""
    inside(standing, "mkdir /tmp/links; echo x > /tmp/links/file; ln -s /etc/passwd /tmp/links/link")
    ended = standing("sandbox cp", "work:/tmp/links", standing.place / "links")
    assert ended.code == 1
    assert "link" in ended.err
    assert [path.name for path in (standing.place / "links").iterdir()] == ["file"]


def test_nothing_is_copied_through_a_link(standing: Product) -> None:
    """What is copied out into the workspace goes through no link that was made inside."""
    outside = standing.place / "outside"
    outside.mkdir()
    inside(standing, f"ln -s {outside} trap; echo x > /tmp/file")
    assert standing("sandbox cp", "work:/tmp/file", standing.project / "trap" / "file").code != 0
    assert list(outside.iterdir()) == []


def test_forward(standing: Product) -> None:
    """`sandbox forward` prints where a server inside is shown at 127.0.0.1 until Ctrl-C; both ends are recorded."""
    server = "mkdir -p /tmp/www; echo page > /tmp/www/page; cd /tmp/www; python3 -m http.server 8000 >/dev/null 2>&1 &"
    inside(standing, server)
    asked = "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/page')"
    poll(lambda: inside(standing, f'python3 -c "{asked}" 2>/dev/null').code == 0)
    with standing.started("sandbox forward", "work", "8000") as process:
        (address,) = read_until(process.stdout, b"\n").decode().split()[-1:]
        url = address if address.startswith("http") else f"http://{address}"
        with urllib.request.urlopen(f"{url}/page") as answer:
            assert answer.read() == b"page\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    host, _, port = url.removeprefix("http://").rpartition(":")
    with socket.socket() as connection:
        assert connection.connect_ex((host, int(port.rstrip("/")))) != 0
    assert inside(standing, "true").code == 0  # by then its holder has seen the end
    run = standing.does("sandbox inspect", "work").json["run"]
    (published,), (withdrawn,) = (
        standing.recorded(f"port.{what}", run) for what in ("published", "withdrawn")
    )
    assert published["host_port"] == int(port.rstrip("/"))
    assert (withdrawn["port"], withdrawn["connections"]) == (8000, 1)


def test_a_port_that_is_taken(standing: Product) -> None:
    """A port of this machine that is taken is a usage error that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        standing("sandbox forward", "work", "8080", "--host-port", port).fails_as("usage", port)


def test_other_runs_are_refused_meanwhile(standing: Product) -> None:
    """While it stands no other run works on its workspace, except on a copy; the error says how it is removed."""
    for words in (("exec", "--", "true"), ("sandbox create", "second", "--mode", "bind")):
        ended = standing(*words)
        assert ended.ends_as("refused")
        assert "sandbox rm work" in ended.err
    standing.does("exec", "--mode", "clone", "--", "true")


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("sandbox create", "work"), "work"),
        (("sandbox create", "Bad Name"), "Bad Name"),
        (("sandbox rm", "gone"), "gone"),
        (("sandbox inspect", "gone"), "gone"),
        (("sandbox exec", "gone", "true"), "sandbox ls"),
        (("sandbox stats", "gone"), "gone"),
        (("sandbox allow", "gone", "a.example"), "gone"),
        (("sandbox forward", "gone", "80"), "gone"),
        (("sandbox cp", "a", "b"), "NAME:PATH"),
        (("sandbox cp", "work:a", "work:b"), "NAME:PATH"),
        (("sandbox exec", "-t", "work", "sh"), "terminal"),
        (("sandbox allow", "work", "http://a/b"), "http://a/b"),
        (("sandbox allow", "work", "no rule"), "no rule"),
        (("sandbox allow", "work", "*.com"), "*.com"),
        (("sandbox deny", "work", "packages"), "packages"),
        (("sandbox exec", "work", "--timeout", "1s", "--", "true"), "--timeout"),
    ],
    ids=[
        "name taken",
        "name",
        "removed",
        "inspected",
        "entered",
        "measured",
        "allowed",
        "forwarded",
        "no sandbox named",
        "between two sandboxes",
        "no terminal",
        "address for a host",
        "no rule",
        "whole registry",
        "denial of a preset",
        "option behind the name",
    ],
)
def test_usage(standing: Product, words: tuple[str, ...], value: str) -> None:
    """A command that makes no sense is a usage error of one line with what is wrong."""
    standing(*words).fails_as("usage", value)


def test_credentials_of_a_cloud_are_not_allowed(standing: Product) -> None:
    """An address at which a cloud serves credentials is refused by policy, in one line."""
    standing("sandbox allow", "work", "169.254.169.254").fails_as("refused", "169.254.169.254")


def test_the_bare_host_cannot_stand(product: Product) -> None:
    """Without a fence no sandbox stands."""
    assert product("sandbox create", "bare", "--sandbox", "host").ends_as("refused")
    assert product.does("sandbox ls", "--json").json == []


def test_life(product: Product, fence: Fence) -> None:
    """Its whole life is one sealed record: commands and changes; `diff` and `undo` take it like a run."""
    product.does("sandbox create", "life", *fence)
    product.does("sandbox exec", "life", "--", "sh", "-c", "echo two > app.py; echo printed")
    (run,) = product.runs()
    ended = product.does("sandbox rm", "life")
    assert ended.out.strip() == "life"
    assert "1 file changed" in ended.err
    (command,) = product.recorded("command.ended")
    assert "echo two > app.py; echo printed" in command["argv"]
    assert command["stdout"] == "printed\n"
    events = [line["event"] for line in product.record()]
    places = [events.index(name) for name in ("sandbox.created", "command.ended", "sandbox.destroyed")]
    assert places == sorted(places)
    assert events[-1] == "journal.sealed"
    product.does("runs verify", run)
    assert "app.py" in product.does("diff", run, "--stat").out
    product.does("undo", run)
    assert (product.project / "app.py").read_text() == "print('one')\n"


def test_several(product: Product) -> None:
    """Two sandboxes on two workspaces stand beside each other, and are removed by one command."""
    other = product.place / "elsewhere"
    other.mkdir()
    product.does("sandbox create", "one", "--mode", "clone")
    product.does("sandbox create", "two", "--mode", "clone", cwd=product.home.parent / "elsewhere")
    assert {row["name"] for row in product.does("sandbox ls", "--json").json} == {"one", "two"}
    assert product.does("sandbox rm", "one", "two").out.split() == ["one", "two"]
    assert product.does("sandbox ls", "--json").json == []


def test_everything_inside_dies_with_it(product: Product) -> None:
    """When it is removed, everything inside is killed, and its workspace is free."""
    product.does("sandbox create", "dying")
    product.does("sandbox exec", "dying", "--", "sh", "-c", "setsid sleep 4247 > /dev/null 2>&1 &")
    product.does("sandbox rm", "dying")
    assert not processes_with(b"sleep\x004247")
    product.does("exec", "--", "true")


def test_its_holder_dies(product: Product) -> None:
    """If its holder is killed, all inside dies, the record is sealed, and the next command frees the name."""
    product.does("sandbox create", "orphan")
    (run,) = product.runs()
    product.does("sandbox exec", "orphan", "--", "sh", "-c", "setsid sleep 4248 > /dev/null 2>&1 &")
    os.kill(product.does("sandbox inspect", "orphan").json["holder_pid"], signal.SIGKILL)
    poll(lambda: not processes_with(b"sleep\x004248"))
    poll(lambda: all(row["state"] != "running" for row in product.does("sandbox ls", "--json").json))
    product("sandbox rm", "orphan")
    product.does("runs verify", run)
    product.does("sandbox create", "orphan")
    product.does("sandbox rm", "orphan")


def test_time_to_live(product: Product) -> None:
    """After its `--ttl` it ends by itself."""
    product.does("sandbox create", "brief", "--ttl", "1s")
    ended = product("sandbox exec", "brief", "--", "sleep", "600")
    assert ended.code != 0
    assert "time to live" in ended.err


def test_copies_of_containers(product: Product) -> None:
    """Files are copied into and out of a container as of any other sandbox."""
    image = need_docker()
    product.does("sandbox create", "box", "--sandbox", "docker", "--image", image)
    try:
        (product.place / "in").write_text("text")
        product.does("sandbox cp", product.place / "in", "box:/tmp/in")
        product.does("sandbox cp", "box:/tmp/in", product.place / "out")
        assert (product.place / "out").read_text() == "text"
    finally:
        product("sandbox rm", "box")
