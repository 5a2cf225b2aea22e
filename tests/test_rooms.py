"""The house keeps its rooms: where imports go, what packages are called, what an import costs."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "ringfence"
MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.slow
def test_imports_go_downwards_only():
    """No room imports from one above it."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_every_room_has_its_place():
    """A package or module at the top that the import rules do not name would be free to import anything."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {
        name.strip()
        for contract in rules
        for layer in contract.get("layers", ())
        for name in layer.split("|")
    }
    rooms = {f"ringfence.{path.stem}" for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms - {"ringfence.__init__", "ringfence.__pycache__"} == layers


def test_no_package_for_leftovers():
    """A name that says nothing collects what belongs nowhere."""
    forbidden = {"utils", "util", "helpers", "common", "misc", "core", "base_classes", "manager"}
    assert [path for path in MODULES if forbidden & {*path.relative_to(PACKAGE).with_suffix("").parts}] == []


def test_no_module_grows_too_long():
    """A module is a chapter; it stops at 500 lines."""
    assert [path for path in MODULES if len(path.read_text().splitlines()) > 500] == []


def test_the_guest_needs_the_standard_library_only():
    """The guest runs on whatever python3 the sandbox has: it imports nothing of ours but itself."""
    imported = {
        name.split(".")[0]
        for path in sorted((PACKAGE / "sandbox" / "guest").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imported(node)
    }
    assert imported - sys.stdlib_module_names == set()


def test_only_one_module_starts_processes():
    """Host processes are started, bounded and reaped in one place; the exceptions have their reason."""
    allowed = {
        "process.py",  # the place
        "sandbox/bubblewrap/bwrap.py",  # `bwrap --version`, once
    }
    starting = {
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if "guest" not in path.parts and "testing" not in path.parts
        if "subprocess" in (text := path.read_text())  # most name it nowhere, and need not be parsed
        for node in ast.walk(ast.parse(text))
        if any(name.split(".")[0] == "subprocess" for name in _imported(node))
    }
    assert starting - allowed == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module or ""]
    return []
