"""What users install: the wheel is whole, and the command starts fast because it imports little."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import ringfence

ROOT = Path(__file__).resolve().parent.parent
HEAVY = (
    "anthropic",
    "pydantic",
    "cryptography",
    "mcp",
    "uvicorn",
    "starlette",
    "ruamel",
    "jsonschema",
    "httpx2",
)


def _run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **(env or {})},
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel as hatchling builds it, offline if hatchling is at hand."""
    folder = tmp_path_factory.mktemp("dist")
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv) if uv.exists() else "uv", "build", "--quiet", "--wheel", "--out-dir", str(folder)]
    done = _run(
        *command, "--python", sys.executable, env={"UV_SYSTEM_CERTS": "1", "UV_PYTHON_DOWNLOADS": "never"}
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile):
    """Prompts, type marker, guest: whatever is in the source tree is installed."""
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "ringfence").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted - set(wheel.namelist()) == set()


@pytest.mark.slow
def test_the_wheel_holds_the_pages_that_help_prints(wheel: zipfile.ZipFile):
    """`ringfence help TOPIC` works without a checkout."""
    pages = (ROOT / "docs").glob("*/*.md")
    wanted = {
        f"ringfence/docs/{page.relative_to(ROOT / 'docs')}" for page in pages if page.parent.name != "adr"
    }
    assert wanted - set(wheel.namelist()) == set()


@pytest.mark.slow
def test_the_wheel_says_that_it_is_typed_and_licensed(wheel: zipfile.ZipFile):
    """Type checkers look for `py.typed`, lawyers for the licence."""
    names = wheel.namelist()
    assert "ringfence/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_wheel_brings_the_command(wheel: zipfile.ZipFile):
    """Installing it gives `ringfence`."""
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "ringfence = ringfence.cli:main" in wheel.read(name).decode()


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("run", "--help")], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]):
    """Help answers at once: what takes seconds to import is imported on use."""
    done = _run(
        sys.executable, "-X", "importtime", "-c", "from ringfence.cli import main; main()", *arguments
    )
    assert done.returncode == 0, done.stderr[-2000:]
    imported = {
        line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line
    }
    assert "typer" in imported
    # Typer itself uses pydantic to read a command's arguments, once there is a command.
    allowed = {"pydantic"} if arguments[0] == "run" else set()
    assert (imported & set(HEAVY)) - allowed == set()


def test_importing_does_nothing():
    """`import ringfence` reads no environment, makes no directory, imports no room."""
    script = (
        "import sys, ringfence; print(sorted(name for name in sys.modules if name.startswith('ringfence.')))"
    )
    done = _run(sys.executable, "-I", "-c", script)
    assert done.stdout.strip() == "[]"


def test_public_names_are_there():
    """What the documentation imports from `ringfence` can be imported."""
    script = "from ringfence import ExecResult, Sandbox, SandboxSpec, __version__"
    assert _run(sys.executable, "-c", script).returncode == 0


def test_every_dependency_has_its_reason():
    """The page of dependencies names those of pyproject.toml, and no others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    wanted = {re.split(r"[^\w.-]", name)[0] for name in [*project["dependencies"], *extras]}
    page = (ROOT / "docs" / "explanation" / "dependencies.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if "|" in line
    ]
    named = {name for row in rows for name in (row[1] if row[0].startswith("`") else row[0]).split(", ")}
    assert wanted == named - {"package", "extra", "---"}


def test_one_version_is_named():
    """The code, the package and the newest section of the changelog agree."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert ringfence.__version__ == version
    assert headings[0] == version.partition(".dev")[0]


def test_the_absence_of_every_extra_is_tried():
    """`make release-check` uses each extra without its packages; a new extra needs a row in scripts/release/trial.py."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tree = ast.parse((ROOT / "scripts" / "release" / "trial.py").read_text())
    (rows,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXTRAS"
    )
    assert isinstance(rows, ast.Dict)
    assert {ast.literal_eval(key) for key in rows.keys if key} == set(project["optional-dependencies"])
