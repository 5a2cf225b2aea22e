"""The documentation does what it says: its commands run, its code compiles, its links lead somewhere.

Conventions, in every Markdown file:

* ```` ```console ```` is run by bash, block after block of a page in one shell. Lines that start with `$ ` are
  commands (`> ` goes on with one), the rest is what they print, both streams; `...` stands for anything. A command
  may fail only if the next one is `echo $?`. The page starts in a directory like a checkout, which holds a copy of
  `examples/` and nothing else, with a clean home.
* A block after `<!-- file: NAME -->` is written to that file first.
* ```` ```python ```` compiles, and what it imports from ringfence is there.
* `<!-- needs: NAME -->` anywhere in a page: its commands need a module or program that the usual set-up leaves out.
* Any other block (`sh`, `yaml`, `text`) is for reading.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.docs import links
from tests.shown_commands import commands_in, fault_of

import ringfence

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
BLOCK = re.compile(r"^(?:<!-- file: (\S+) -->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"^<!-- needs: (\w+) -->$", re.MULTILINE)
PROOFS = ROOT / "scripts" / "reference" / "proofs.toml"
OWNER = 12345
"""Whose the files of a page are where root runs the tests: root's own would be shown as a clone only."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    kind: str
    text: str
    file: str | None


@dataclass(frozen=True)
class Command:
    text: str
    expected: str
    place: str


def _blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, match.start()) + 1, match[2], match[3], match[1])
        for match in BLOCK.finditer(text)
    ]


def _commands(block: Block) -> list[Command]:
    found: list[tuple[list[str], list[str], int]] = []
    for number, line in enumerate(block.text.splitlines()):
        if line.startswith("$ "):
            found.append(([line[2:]], [], block.line + number + 1))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            found[-1][1].append(line)
    return [
        Command("\n".join(said), "\n".join(printed), f"{block.page.relative_to(ROOT)}:{line}")
        for said, printed, line in found
    ]


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


_LOOPS = (ROOT / "docs" / "how-to" / "run-a-loop.md",)
"""Whose whole loops are dear; smaller ones are worked as everybody in tests/loop."""
RUN = [page for page in PAGES if any(block.kind == "console" for block in _blocks(page))]


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that the owner of a page's files can walk to; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="ringfence-docs-") as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.any_user) if page in _LOOPS else page for page in RUN],
    ids=_named,
)
def test_commands_print_what_the_page_says(page: Path, open_path: Path):
    """Whoever types what the page says sees what the page says."""
    _run_page(page, open_path, owner=OWNER if os.geteuid() == 0 else None)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a project of root's own")
def test_the_first_run_is_the_same_on_a_project_of_roots_own(open_path: Path):
    """The agent works on a private copy there, and the tutorial's commands work in the same order."""
    _run_page(ROOT / "docs" / "tutorial" / "first-run.md", open_path, owner=None)


def _run_page(page: Path, open_path: Path, *, owner: int | None) -> None:
    _check_needs(page)
    place = open_path / "place" / "ringfence"
    shutil.copytree(ROOT / "examples", place / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    said: list[Command] = []
    script = ["set +e"]
    for number, block in enumerate(_blocks(page)):
        if block.file:
            (open_path / f"file{number}").write_text(block.text)
            script.append(f"cp {open_path}/file{number} {block.file}")
        elif block.kind == "console":
            for command in _commands(block):
                script.append(_step(command, len(said), place.parent, owner))
                said.append(command)
    environment = _environment(open_path)
    try:
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
    finally:
        _end_crew(environment)
    parts = re.split(r"^@@@(\d+) (\d+)\n", done.stdout, flags=re.MULTILINE)
    for number, command in enumerate(said):
        printed, code = parts[3 * number], int(parts[3 * number + 2])
        assert _fits(printed, command.expected), f"{command.place}: {command.text}\nprinted:\n{printed}"
        if code != 0:
            follows = said[number + 1].text if number + 1 < len(said) else ""
            assert follows == "echo $?", f"{command.place}: {command.text}\nexit code {code}:\n{printed}"


def _end_crew(environment: dict[str, str]) -> None:
    """End the daemon of a page that did not come to its end."""
    if any(Path(environment["HOME"]).rglob("daemon.sock")):
        subprocess.run(["ringfence", "fleet", "down", "--now"], env=environment, timeout=60, check=True)


def _check_needs(page: Path) -> None:
    for name in NEEDS.findall(page.read_text()):
        if find_spec(name) is None and shutil.which(name) is None:
            lacking = f"{name} is not installed: uv sync --group clients, or your system's packages"
            (pytest.fail if os.environ.get("TEST_REQUIRES_CLIENTS") else pytest.skip)(lacking)


def _step(command: Command, number: int, place: Path, owner: int | None) -> str:
    own = "" if owner is None else f"chown -Rh {owner}:{owner} {place}; "
    # What comes last puts the exit code back where the next command looks for it.
    return f"{command.text}\n__code=$?; {own}printf '\\n@@@{number} %d\\n' $__code; (exit $__code)"


def _environment(path: Path) -> dict[str, str]:
    home = path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    kept = {name: os.environ[name] for name in ("LANG", "XDG_RUNTIME_DIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_COLOR": "1",
    }


def _fits(printed: str, expected: str) -> bool:
    pattern = re.escape(_trimmed(expected)).replace(r"\.\.\.", r".*?")
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.mark.slow
def test_the_example_of_the_readme_is_a_whole_script(open_path: Path):
    """Copied to a file and started in a project, it does what it says."""
    (block,) = (block for block in _blocks(ROOT / "README.md") if block.kind == "python")
    place = open_path / "red-suite"
    shutil.copytree(ROOT / "examples" / "red-suite", place)
    (place / "example.py").write_text(block.text)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{OWNER}:{OWNER}", place], check=True)
    done = subprocess.run(
        [sys.executable, place / "example.py"],
        cwd=place,
        env=_environment(open_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1 ")
    assert "FAILED (failures=5, errors=1)" in done.stdout


_OF_EXTRAS = {"inspect_ai", "minisweagent", "swerex"}
"""Packages of extras that `make setup` leaves out."""
CODE = [block for page in PAGES for block in _blocks(page) if block.kind == "python"]


@pytest.mark.parametrize("block", CODE, ids=lambda block: f"{_named(block.page)}:{block.line}")
def test_code_compiles_and_imports_what_is_there(block: Block):
    """Code can be copied from a page."""
    compile(block.text, _named(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    imports = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.ImportFrom)]
    for package in {str(node.module).partition(".")[0] for node in imports} & _OF_EXTRAS:
        pytest.importorskip(package, reason=f"{package} is not installed: uv sync --group contracts")
    for node in imports:
        if str(node.module).startswith("ringfence"):
            for alias in node.names:
                assert hasattr(import_module(str(node.module)), alias.name), f"{node.module}.{alias.name}"


@pytest.mark.parametrize("block", CODE, ids=lambda block: f"{_named(block.page)}:{block.line}")
def test_code_imports_public_modules(block: Block):
    """Those that `help(ringfence)` names; a page that uses others says that they may change."""
    public = tuple(re.findall(r"`(ringfence\.[.a-z]+)`", str(ringfence.__doc__)))
    imports = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.ImportFrom)]
    modules = {str(node.module) for node in imports if str(node.module).startswith("ringfence.")}
    internal = {module for module in modules if not module.startswith(public)}
    assert not internal or "internal and may change" in block.page.read_text()


_OF_OLD_COMMANDS = {"CHANGELOG.md", "docs/how-to/upgrade.md"}


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_commands_that_are_shown_exist(page: Path):
    """Each command and option of ringfence on a page exists; decisions and the changelog may name former ones."""
    if _named(page) in _OF_OLD_COMMANDS or page.parent.name == "adr":
        return
    faults = {line: fault_of(line) for line in commands_in(page.read_text())}
    assert {line: fault for line, fault in faults.items() if fault} == {}


@pytest.mark.parametrize("page", links.PAGES, ids=_named)
def test_links_lead_somewhere(page: Path):
    """Every link leads to a file of the project, and to a heading in it, or is a well-formed address."""
    faults = {str(link): links.fault_of(link) for link in links.links_of_page(page)}
    assert {link: fault for link, fault in faults.items() if fault} == {}


def test_links_of_the_code_lead_somewhere():
    """So do the addresses and pages that docstrings and comments name."""
    found = [link for source in links.SOURCES for link in links.links_of_source(source)]
    assert len(found) > 20
    assert {str(link): fault for link in found if (fault := links.fault_of(link))} == {}


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("no-such-page.md", "no such file"),
        ("README.md#no-such-heading", "no heading"),
        ("../../../etc/hostname", "no such file|out of the project"),
        ("ftp://peer.org/file", "only http"),
        ("http://peer.org/", "not encrypted"),
        ("https://user@peer.org/", "no user"),
        ("https://peer/", "no host has the name"),
    ],
    ids=str,
)
def test_a_link_that_leads_nowhere_is_noticed(target: str, fault: str):
    """Each kind of fault is found."""
    assert re.search(fault, str(links.fault_of(links.Link(ROOT / "docs" / "README.md", 1, target))))


def test_the_readme_needs_no_other_file():
    """A package index shows it alone: a relative link or picture would lead nowhere."""
    targets = [link.target for link in links.links_of_page(ROOT / "README.md")]
    assert [target for target in targets if not target.startswith("https://")] == []


def test_recipes_name_files_that_exist():
    """A recipe leads to the files that are to be changed."""
    named = re.findall(r"`((?:src|tests|scripts|skills)/[\w./]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_page_of_the_architecture_names_every_package():
    """And no package or module that is gone."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    section = page[page.index("## Packages") : page.index("### The sandbox package")]
    (listed,) = re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"^([a-z_]+(?:/|\.py))  ", listed, re.MULTILINE))
    package = ROOT / "src" / "ringfence"
    packages = {f"{path.name}/" for path in package.iterdir() if (path / "__init__.py").exists()}
    modules = {path.name for path in package.glob("[a-z]*.py")}
    assert named == packages | modules


def test_each_topic_is_one_page():
    """`ringfence help TOPIC` finds a page by its name alone."""
    names = [page.name for page in (ROOT / "docs").glob("*/*.md") if page.parent.name != "adr"]
    assert sorted(names) == sorted(set(names))


def test_every_page_is_reached():
    """A page that no other page links to is found by nobody."""
    linked = {
        (page.parent / link.target.partition("#")[0]).resolve()
        for page in PAGES
        for link in links.links_of_page(page)
        if not link.is_outside and not link.target.startswith("#")
    }
    assert [_named(page) for page in (ROOT / "docs").rglob("*.md") if page.resolve() not in linked] == []


def test_every_promise_names_what_proves_it():
    """Each guard of the page of proofs names attacks or tests, and they exist."""
    attacks = {attack.name for attack in import_module("ringfence.testing.attack").ATTACKS}
    guards = [guard for section in tomllib.loads(PROOFS.read_text())["section"] for guard in section["guard"]]
    assert len(guards) > 100
    for guard in guards:
        assert guard["proof"], guard["guard"]
        for proof in guard["proof"]:
            file, _, test = proof.partition("::")
            if file.startswith("tests/"):
                assert f"def {test}(" in (ROOT / file).read_text() if test else (ROOT / file).exists(), proof
            else:
                assert proof in attacks, proof
