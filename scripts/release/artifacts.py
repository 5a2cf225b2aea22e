"""Builds sdist and wheel, and checks their bytes, contents and metadata."""

import email
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from release.base import CheckFailed, Release, expect, run

MAX_FILE_BYTES = 1024**2
MAX_WHEEL_BYTES, MAX_SDIST_BYTES = 6 * 1024**2, 12 * 1024**2
_LARGE = {"uv.lock": 4 * 1024**2}
_UNWANTED = ("*/__pycache__/*", "*.pyc", "*/.*_cache/*", "*.egg-info/*", "*/.venv/*", "*.orig", "*.rej")
_PAGES = ("tutorial", "how-to", "reference", "explanation")
"""The directories of docs/ that `ringfence help` reads."""


def install_tools(release: Release) -> str:
    """Install the group `release` of uv.lock; the backend that builds is among it, so its version is fixed, too."""
    uv = release.root / ".venv" / "bin" / "uv"
    found = str(uv) if uv.exists() else shutil.which("uv")
    expect(found is not None, "uv is neither in .venv nor on PATH; run `make setup`")
    environment = {
        "UV_PROJECT_ENVIRONMENT": str(release.tools.parent),
        "UV_SYSTEM_CERTS": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    command = [
        str(found),
        "sync",
        "--quiet",
        "--frozen",
        "--only-group",
        "release",
        "--python",
        release.python,
    ]
    run(command, cwd=release.root, env=environment)
    names = ("build", "hatchling", "twine", "cyclonedx-bom")
    script = (
        "import sys, importlib.metadata as m; print(*[f'{n} {m.version(n)}' for n in sys.argv[1:]], sep=', ')"
    )
    constraints = [
        str(found),
        "export",
        "--quiet",
        "--frozen",
        "--no-dev",
        "--no-hashes",
        "--no-emit-project",
    ]
    run([*constraints, "--output-file", release.work / "constraints.txt"], cwd=release.root, env=environment)
    return run([release.tools / "python", "-I", "-c", script, *names]).strip()


def build(release: Release) -> str:
    """Build twice, at different places, under different umasks and time zones, from files of different ages."""
    for old in _published(release):
        old.unlink()
    files = tracked_files(release.root)
    first, second = release.work / "first", release.work / "a second place" / "ringfence"
    for copy in (first, second):
        for name in files:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(release.root / name, copy / name, follow_symlinks=False)
    for name in files:
        os.utime(second / name, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
    epoch = _run_git(release.root, "log", "-1", "--format=%ct").strip()
    # The wheel from the sdist, which is what `build` does by itself; then the wheel from the tree.
    _build(release, first, release.built, [], {"SOURCE_DATE_EPOCH": epoch, "TZ": "UTC"}, umask=0o022)
    again = release.work / "again"
    options = ["--sdist", "--wheel"]
    _build(release, second, again, options, {"SOURCE_DATE_EPOCH": epoch, "TZ": "Asia/Kathmandu"}, umask=0o077)
    for path in (release.sdist, release.wheel):
        expect(
            path.is_file(),
            f"{path.name} was not built; found: {sorted(found.name for found in release.built.iterdir())}",
        )
        same = path.read_bytes() == (again / path.name).read_bytes()
        expect(same, f"two builds of {path.name} differ, so that nobody can build the published one again")
    changed = len(_run_git(release.root, "status", "--porcelain").splitlines())
    note = f"; {changed} files are not committed" if changed else ""
    sizes = ", ".join(
        f"{path.name} {path.stat().st_size // 1024} KiB" for path in (release.wheel, release.sdist)
    )
    return f"{sizes}; two builds have the same bytes, and the sdist's wheel is the tree's{note}"


def _build(
    release: Release, tree: Path, out: Path, options: list[str], env: dict[str, str], *, umask: int
) -> None:
    command = [release.tools / "python", "-m", "build", "--no-isolation", *options, "--outdir", out, tree]
    words = ["sh", "-c", f'umask {umask:04o} && exec "$@"', "sh", *map(str, command)]
    run(words, cwd=tree, env=env)


def check_contents(release: Release) -> str:
    """Compare the names in wheel and sdist with the tracked files, and look at their sizes."""
    files = tracked_files(release.root)
    with zipfile.ZipFile(release.wheel) as wheel:
        in_wheel = {entry.filename: entry.file_size for entry in wheel.infolist()}
        expect(wheel.testzip() is None, f"{release.wheel.name} is damaged")
    with tarfile.open(release.sdist) as sdist:
        members = sdist.getmembers()
    top = f"ringfence-{release.version}/"
    odd = [member.name for member in members if not member.isfile() or not member.name.startswith(top)]
    expect(not odd, f"the sdist has entries that are no files of {top}: {odd[:5]}")
    in_sdist = {member.name.removeprefix(top): member.size for member in members}
    info = f"ringfence-{release.version}.dist-info/"
    package = {name for name in in_wheel if not name.startswith(info)}
    _compare("wheel", package, _expected_in_wheel(files))
    _compare("sdist", set(in_sdist) - {"PKG-INFO", ".gitignore"}, _expected_in_sdist(release.root, files))
    for name in ("ringfence/py.typed", f"{info}licenses/LICENSE", f"{info}entry_points.txt"):
        expect(name in in_wheel, f"the wheel has no {name}")
    for kind, sizes in (("wheel", in_wheel), ("sdist", in_sdist)):
        unwanted = [
            name for name in sizes if any(fnmatch(f"/{name}", f"*{pattern}") for pattern in _UNWANTED)
        ]
        expect(not unwanted, f"the {kind} has files that nobody wants: {unwanted[:5]}")
        large = [name for name, size in sizes.items() if size > _LARGE.get(name, MAX_FILE_BYTES)]
        expect(not large, f"the {kind} has large files: {large}")
    expect(release.wheel.stat().st_size < MAX_WHEEL_BYTES, "the wheel is too large")
    expect(release.sdist.stat().st_size < MAX_SDIST_BYTES, "the sdist is too large")
    pages = sum(name.startswith("ringfence/docs/") for name in in_wheel)
    return f"wheel: {len(in_wheel)} files, {pages} of them pages; sdist: {len(in_sdist)} files; nothing else"


def _expected_in_wheel(files: list[str]) -> set[str]:
    code = {name.removeprefix("src/") for name in files if name.startswith("src/ringfence/")}
    pages = {f"ringfence/{name}" for name in files if PurePosixPath(name).parts[:1] == ("docs",)}
    return code | {name for name in pages if name.split("/")[2] in _PAGES}


def _expected_in_sdist(root: Path, files: list[str]) -> set[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    return {name for name in files if name.split("/")[0] in {*included, "pyproject.toml"}}


def _compare(kind: str, found: set[str], expected: set[str]) -> None:
    missing, more = sorted(expected - found), sorted(found - expected)
    expect(not missing, f"the {kind} lacks {len(missing)} files: {missing[:5]}")
    expect(not more, f"the {kind} has {len(more)} files that are not tracked: {more[:5]}")


def check_metadata(release: Release) -> str:
    """Check the metadata, the versions, and the README as an index renders it."""
    project = tomllib.loads((release.root / "pyproject.toml").read_text())["project"]
    expect(
        project["version"] == release.version,
        f"pyproject.toml has {project['version']}, the code {release.version}",
    )
    with zipfile.ZipFile(release.wheel) as wheel:
        name = f"ringfence-{release.version}.dist-info/METADATA"
        metadata = email.message_from_bytes(wheel.read(name))
    expect(
        metadata["Metadata-Version"] == "2.4",
        f"the metadata have version {metadata['Metadata-Version']}, not 2.4",
    )
    expect(metadata["License-Expression"] == project["license"], "the metadata lack the licence")
    licences = set(metadata.get_all("License-File", []))
    expect(
        licences == set(project["license-files"]), f"the metadata name {sorted(licences)} as licence files"
    )
    expect(
        metadata["Requires-Python"] == project["requires-python"], "the metadata lack the versions of Python"
    )
    _check_changelog(release)
    checked = run([release.tools / "twine", "check", "--strict", release.wheel, release.sdist])
    expect(checked.count("PASSED") == 2, f"twine did not accept both files:\n{checked}")
    html = _render(release)
    return f"metadata 2.4, {project['license']}; twine accepts both; README becomes {len(html) // 1024} KiB of HTML"


def _check_changelog(release: Release) -> None:
    """A final version has a dated section at the top of the changelog."""
    lines = (release.root / "CHANGELOG.md").read_text().splitlines()
    heading = next((line for line in lines if line.startswith("## ")), "")
    base = release.version.partition(".dev")[0]
    expect(heading.startswith(f"## [{base}]"), f"the changelog begins with {heading!r}, not with [{base}]")
    if base == release.version:
        expect(
            "unreleased" not in heading.lower(),
            f"version {base} is final, but the changelog says {heading!r}",
        )


def _render(release: Release) -> str:
    """Render the README as a package index does, and check that it keeps its tables and code and links only outside."""
    script = (
        "import sys, readme_renderer.markdown as m; html = m.render(sys.stdin.read()); "
        "sys.exit('the README cannot be rendered') if html is None else print(html)"
    )
    html = subprocess.run(
        [release.tools / "python", "-I", "-c", script],
        input=(release.root / "README.md").read_text(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if html.returncode:
        raise CheckFailed(f"the README cannot be rendered: {html.stderr[-1000:]}")
    expect(html.stdout.count("<table>") >= 2, "the README lost its tables as an index renders it")
    targets = re.findall(r'(?:href|src)="([^"]*)"', html.stdout)
    headings = {f"#{name}" for name in re.findall(r'id="([^"]*)"', html.stdout)}
    relative = [target for target in targets if not target.startswith("https://") and target not in headings]
    expect(not relative, f"on an index, these links of the README lead nowhere: {relative}")
    return html.stdout


def publish(release: Release) -> str:
    """Put the files of this build into dist/, where those of an earlier one are gone, and write their SHA-256."""
    dist = release.root / "dist"
    dist.mkdir(exist_ok=True)
    sums = []
    for path in (release.sdist, release.wheel, release.sbom):
        shutil.copy(path, dist / path.name)
        sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
    (dist / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    return "; ".join(f"{line[66:]} {line[:12]}" for line in sums)


def _published(release: Release) -> list[Path]:
    dist = release.root / "dist"
    return [*dist.glob("ringfence-*"), *dist.glob("SHA256SUMS")]


def tracked_files(root: Path) -> list[str]:
    """Return the files that git knows, without deleted ones."""
    listed = _run_git(root, "ls-files", "-z").split("\0")
    return [name for name in listed if name and (root / name).is_file()]


def _run_git(root: Path, *arguments: str) -> str:
    return run(["git", "-C", root, *arguments])
