"""The command itself, the machine it runs on, warm sandboxes, images, and what dead processes left."""

import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from tests.promises.needs import need_docker
from tests.promises.product import PATIENCE_S, Product, poll, read_until, says

COMMANDS = [
    *("run", "exec", "shell", "claude", "codex", "diff", "apply", "undo", "doctor", "init", "gc", "loop"),
    *("fleet", "job", "sandbox", "checkpoint", "session", "image", "config"),
]


def test_version(shared: Product) -> None:
    """`--version` prints the name and the version."""
    name, version = shared.does("", "--version").out.split()
    assert name == "ringfence"
    assert version[0].isdigit()


@pytest.mark.parametrize("command", COMMANDS)
def test_help(shared: Product, command: str) -> None:
    """Each command has a help, on stdout, with exit code 0, and the help of all lists it."""
    ended = shared.does(command, "--help")
    assert ended.out.startswith("Usage:")
    assert ended.stderr == b""
    assert command in shared.does("", "--help").out


def test_completion(shared: Product) -> None:
    """A shell gets its own script of completion."""
    command = shared.words("", "--show-completion")
    done = subprocess.run(
        ["bash", "-c", '"$@"; exit $?', "bash", *command],
        env=shared.variables(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done
    assert "ringfence" in done.stdout
    assert "complete -o" in done.stdout


def test_head(product: Product) -> None:
    """Whoever reads only the first lines gets no traceback."""
    with product.started("config schema") as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()


def test_colours(product: Product) -> None:
    """What is piped has no colours."""
    out = product.run(product.script(says("done"))).out
    assert "\x1b" not in out


def test_doctor(shared: Product) -> None:
    """`doctor --json` opens sandboxes, attempts escapes and says what holds: exit code 0 where a fence can be had."""
    found = shared.does("doctor", "--json").json
    (backend,) = [each for each in found["backends"] if each["name"] == "bubblewrap"]
    assert backend["opened"] is True
    assert {"memory", "cpus", "pids", "disk"} <= backend["enforced"].keys()
    assert backend["attacks"]
    assert all(attack["held"] for attack in backend["attacks"])


def test_doctor_without_a_fence(shared: Product) -> None:
    """`doctor` ends with 125 where none of the image that was named can be had."""
    assert shared("doctor", "--image", "localhost/none:1").ends_as("sandbox start")


@pytest.fixture
def pooled(product: Product) -> Iterator[Product]:
    """A product that keeps a warm sandbox."""
    product.configure(product.settings, pool={"size": 1})
    yield product
    product.does("pool stop")


def waiting(product: Product) -> list[str]:
    """The ids of warm sandboxes that wait."""
    rows = product.does("pool status", "--json").json["waiting"]
    return [row["sandbox_id"] for row in rows if row["state"] == "ready"]


def test_warm_sandboxes(pooled: Product) -> None:
    """With a pool a command takes the sandbox that waits, once, and the next one is kept warm until `pool stop`."""
    prepare = ("--setup", "echo x >> set-up")
    assert pooled.shell("true", *prepare).code == 0
    (warm,) = poll(lambda: waiting(pooled))
    (row,) = pooled.does("pool status", "--json").json["waiting"]
    assert row["workspace"] == str(pooled.project)
    assert (pooled.project / "set-up").read_text() == "x\n"
    assert pooled.shell("cat app.py; echo x > made; echo y > /tmp/left", *prepare).out == "print('one')\n"
    (created,) = pooled.recorded("sandbox.created")
    assert created["sandbox_id"] == warm
    assert "warm" in created["chosen_because"]
    assert [each["argv"][-1] for each in pooled.recorded("command.ended")][:-1] == [prepare[1]]
    assert (pooled.project / "set-up").read_text() == "x\nx\n"
    assert "made" in pooled.does("diff", "last", "--stat").out
    poll(lambda: waiting(pooled))
    assert pooled.shell("test ! -e /tmp/left", *prepare).code == 0
    found = pooled.does("pool status", "--json").json
    assert (found["hits"], found["misses"]) == (2, 1)
    pooled.does("pool stop")
    assert pooled.does("pool status", "--json").json["waiting"] == []
    assert "0 waiting" in pooled.does("pool status").out


def test_a_warm_sandbox_that_does_not_fit(pooled: Product) -> None:
    """A warm sandbox is not handed out for another kind of command."""
    pooled.exec("true")
    (warm,) = poll(lambda: waiting(pooled))
    pooled.does("exec", "--mode", "read_only", "--", "true")
    assert pooled.recorded("sandbox.created")[0]["sandbox_id"] != warm


def test_no_pool_by_default(product: Product) -> None:
    """Without a pool nothing waits."""
    product.exec("true")
    assert product.does("pool status", "--json").json["waiting"] == []
    assert "no pool" in product.does("pool status").err


def test_what_killed_commands_left(product: Product) -> None:
    """`gc` closes the record of a run that was killed."""
    with product.started("exec", "--", "sh", "-c", "echo in; sleep 600") as process:
        read_until(process.stdout, b"in")
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    (run,) = product.runs()
    poll(lambda: product.does("gc") and product.does("runs ls", "--json").json[0]["is_sealed"])
    assert product.ended(run)["state"] == "interrupted"


def test_gc_for_programs(shared: Product) -> None:
    """`gc --json` says what went."""
    found = shared.does("gc", "--dry-run", "--json").json
    assert found["is_dry_run"] is True
    assert found["runs"] == []


def test_an_age_that_is_none(shared: Product) -> None:
    """An age that makes no sense is a usage error that holds it."""
    shared("gc", "--older-than", "someday").fails_as("usage", "someday")


def test_no_engine(shared: Product) -> None:
    """Where no engine answers, images cannot be listed: exit code 125, with the address."""
    shared("image ls", "--engine", "unix:///no/engine").fails_as("sandbox start", "/no/engine")


@pytest.fixture(scope="module")
def images(make_product: Callable[[], Product]) -> tuple[Product, str]:
    """A product, and the image that an engine has."""
    return make_product(), need_docker()


@pytest.mark.docker
def test_images(images: tuple[Product, str]) -> None:
    """`image ls --json` lists images with their names and whether each is current."""
    product, name = images
    rows = product.does("image ls", "--json").json["images"]
    assert name in [each for row in rows for each in row["names"]]


@pytest.mark.docker
def test_image(images: tuple[Product, str]) -> None:
    """`image show` says what an image is made of, and how large it may be."""
    product, name = images
    found = product.does("image show", name, "--json").json
    assert name in found["names"]
    assert found["id"].startswith("sha256:")
    assert found["size_bytes"] > 0


@pytest.mark.docker
def test_an_image_that_is_not_there(images: tuple[Product, str]) -> None:
    """An image that is not there is a usage error that names it, and a sandbox of it cannot be opened."""
    product, _ = images
    product("image show", "localhost/none:1").fails_as("usage", "localhost/none:1")
    ended = product("exec", "--sandbox", "docker", "--image", "localhost/none:1", "--", "true")
    assert ended.ends_as("sandbox start")


@pytest.mark.docker
def test_an_image_chooses_docker(images: tuple[Product, str]) -> None:
    """Where an image is named, the sandbox is a container without saying so; image and engine are recorded."""
    product, name = images
    product.does("exec", "--image", name, "--", "true")
    (created,) = product.recorded("sandbox.created")
    assert (created["backend"], created["chosen_because"]) == ("docker", "auto: an image is named")
    assert created["image"].startswith(f"{name} (sha256:")
    assert created["engine"].startswith("Docker ")
    assert created["engine_ms"].keys() == {"connect", "create", "attach", "start"}
