"""What a user can see of the product, promised by command line, Python API and HTTP only.

The suite runs against any version of the package, so that a change of its inside cannot lose a promise:

- `PROMISES_PYTHON` names the interpreter whose `ringfence` is tried (default: the one that runs the tests). Every
  command is `PYTHON -m ringfence ...` in a process of its own, and so is every program that uses the Python API.
- Without `PROMISES_PYTHON`, commands are forked from a process that has done the imports (`tests.forked`), but for the
  areas in `STARTED_BY_PYTHON`.
- Nothing here imports `ringfence`, nor, with `PROMISES_PYTHON`, any module of the other tests. What is needed is in
  `product.py`.
- Names that change from version to version stand in `names.py` alone.

A test is one promise, and its docstring says it in one sentence. It promises exit codes, fields of JSON, files and
events of records; of a message only that it is one line and holds the value that is to blame. It waits for what
happens, never for a time. Each test has a home, a configuration and a state directory of its own, or shares those of
its module.

`python -m tests.promises` prints how many there are, by area; an area is a module.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.promises.needs import Fence, need_docker
from tests.promises.product import PYTHON, Product

LEFT_PATIENCE_S = 30.0
STARTED_BY_PYTHON = frozenset({"test_exec", "test_machine", "test_python", "test_terminal"})
"""Areas whose commands are started as a user starts them: by Python, with nothing imported."""


@pytest.fixture(scope="session")
def base() -> Iterator[Path]:
    """A directory for all that these tests make; other users can pass through it, and its name is short."""
    made = Path(tempfile.mkdtemp(prefix="promises-"))
    made.chmod(0o711)
    yield made
    subprocess.run(["chmod", "-R", "u+rwX", made], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(made)


def pytest_sessionstart() -> None:
    """See that there is a product to try: without one, a test that something is refused would pass."""
    try:
        done = subprocess.run(
            [PYTHON, "-P", "-m", "ringfence", "--version"], capture_output=True, check=False
        )
    except OSError as exc:
        raise pytest.UsageError(f"PROMISES_PYTHON {PYTHON!r} cannot be run: {exc.strerror}") from exc
    if done.returncode != 0:
        raise pytest.UsageError(f"PROMISES_PYTHON {PYTHON!r} has no ringfence: {done.stderr.decode()[-300:]}")


@pytest.fixture(scope="session", autouse=True)
def nothing_remains(base: Path) -> Iterator[None]:
    """No process of these tests is there after the last one."""
    yield
    deadline = time.monotonic() + LEFT_PATIENCE_S
    while left := list(processes_below(base)):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def processes_below(base: Path) -> Iterator[str]:
    """Other processes whose state directory lies below a directory."""
    variable = b"XDG_STATE_HOME=" + os.fsencode(base) + b"/"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:  # gone meanwhile, or somebody else's
                continue
            if any(each.startswith(variable) for each in environment):
                yield f"process {entry.name}: {os.fsdecode(words)[:200]}"


@pytest.fixture(scope="session")
def template(base: Path) -> Path:
    """A small project under git."""
    made = base / "template"
    made.mkdir()
    (made / "app.py").write_text("print('one')\n")
    (made / ".gitignore").write_text("ignored/\n*.log\n")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ["-c", "user.name=U", "-c", "user.email=u@example.com"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *identity, *words], cwd=made, env=environment, check=True)
    shutil.rmtree(made / ".git" / "hooks")
    return made


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    """Numbers that name the places of products."""
    return count()


@pytest.fixture(scope="module")
def make_product(
    base: Path, template: Path, numbers: Iterator[int], request: pytest.FixtureRequest
) -> Callable[[], Product]:
    """Make a product with a project under git, a home and a state directory of its own."""
    area = request.module.__name__.rpartition(".")[2]
    is_forked = "PROMISES_PYTHON" not in os.environ and area not in STARTED_BY_PYTHON

    def make() -> Product:
        place = base / str(next(numbers))
        place.mkdir()
        return Product(place, template, is_forked=is_forked)

    return make


@pytest.fixture
def product(make_product: Callable[[], Product]) -> Product:
    """A product of the test's own."""
    return make_product()


@pytest.fixture(scope="module")
def shared(make_product: Callable[[], Product]) -> Product:
    """A product that the tests of a module share: they look at what is there, or add what disturbs no other."""
    return make_product()


@pytest.fixture(params=["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)])
def fence(request: pytest.FixtureRequest) -> Fence:
    """Options that choose the kind of sandbox: the same promise holds in each."""
    if request.param == "docker":
        return ("--sandbox", "docker", "--image", need_docker())
    return ("--sandbox", str(request.param))


@pytest.fixture
def with_pytest(product: Product) -> Product:
    """A product whose sandboxes are shown the pytest of these tests."""
    packages = {"source": str(Path(pytest.__file__).parents[1]), "target": "/packages"}
    product.configure(product.settings, sandbox={"mounts": [packages], "env": {"PYTHONPATH": "/packages"}})
    return product
