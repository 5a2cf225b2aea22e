"""Installs wheel and sdist as users do, and tries what was installed, without the checkout."""

import email
import re
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from release.base import Release, expect, run

_NAMES = """
import ringfence
for name in ringfence.__all__:
    getattr(ringfence, name)
print(len(ringfence.__all__), ringfence.__file__)
"""
_MODULES = """
import importlib, pkgutil, sys, ringfence
known, count = set(sys.argv[1:]), 0
for module in pkgutil.walk_packages(ringfence.__path__, "ringfence.", onerror=lambda name: None):
    # Modules for a project's own interpreter, with its runner, and those that act when they are imported.
    if module.name.startswith("ringfence.check.inside") or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except Exception as exc:
        missing = exc if isinstance(exc, ImportError) else exc.__cause__
        if not isinstance(missing, ImportError) or (missing.name or "").split(".")[0] not in known:
            sys.exit(f"{module.name} cannot be imported: {exc!r}")
    count += 1
print(count)
"""
"""Imports every module. Only a package of an extra, given as argument, may be missing."""


@dataclass(frozen=True)
class Extra:
    """An extra, and how one meets its absence."""

    packages: tuple[str, ...]
    """What it adds, as modules of the top level."""
    use: str
    """A shell's lines that use it, in an empty directory with an empty home; the last command must fail with the name
    of the extra."""


_SECRETS = "mkdir -p ~/.config/ringfence; touch key; chmod 600 key; cat >~/.config/ringfence/ringfence.yaml"
_FLEET = "cat >ringfence.yaml; ringfence config trust --yes >&2 && ringfence fleet up"
_AGENTS = "agents: {one: {description: one, prompt: one}}"
EXTRAS = {
    "attest": Extra(
        ("rfc3161_client",),
        "python -I -c 'from ringfence.integrations.attestation.timestamp import verify_timestamp as verify;"
        " verify(bytes(1), bytes(1), ())'",
    ),
    "age": Extra(
        ("pyrage",),
        f"echo 'secrets: {{one: {{age: ~/key, identity: ~/key}}}}' | ({_SECRETS}); ringfence config secrets test one",
    ),
    "keyring": Extra(
        ("keyring",),
        f"echo 'secrets: {{one: keyring:a/b}}' | ({_SECRETS}); ringfence config secrets test one",
    ),
    "claude-sdk": Extra(
        ("claude_agent_sdk", "mcp", "mcp_types"), "ringfence run --runtime claude-sdk --no-verify hello"
    ),
    "inspect": Extra(("inspect_ai",), "python -I -c 'import ringfence.integrations.inspect_provider'"),
    "kubernetes": Extra(("lightkube",), "ringfence exec --sandbox kubernetes --image one:1 -- true"),
    "mcp": Extra(
        ("mcp", "mcp_types"),
        "ringfence mcp </dev/null >/dev/null && exit 1; python -I -c 'import ringfence.tool.mcp'",
    ),
    "mini-swe-agent": Extra(("minisweagent",), "python -I -c 'import ringfence.integrations.mini_swe_agent'"),
    "otel": Extra(
        ("opentelemetry",),
        f"printf 'fleet: {{name: one, traces: {{endpoint: \"http://127.0.0.1:9\"}}}}\\n{_AGENTS}\\n' | ({_FLEET})",
    ),
    "s3": Extra(
        ("s3fs",),
        f"printf 'fleet: {{name: one, records: {{url: \"s3://a/b\"}}}}\\n{_AGENTS}\\n' | ({_FLEET})",
    ),
    "swe-rex": Extra(("swerex",), "python -I -c 'import ringfence.integrations.swe_rex'"),
}


def try_wheel(release: Release) -> str:
    """Install the wheel with the versions that uv.lock names, and try it."""
    constraints = ["--constraint", release.work / "constraints.txt"]
    report = ["--report", release.work / "installed.json"]
    _install(release, release.installed, [*constraints, *report, release.wheel])
    pages = _show_pages(release.installed)
    return f"{_try(release, release.installed)}; {pages} pages"


def try_sdist(release: Release) -> str:
    """Install the sdist with the newest versions of all dependencies, and try it."""
    environment = release.work / "sdist-environment"
    _install(release, environment, [release.sdist])
    return _try(release, environment)


def _install(release: Release, environment: Path, arguments: list[str | Path]) -> None:
    run([release.python, "-I", "-m", "venv", environment])
    pip = [environment / "bin" / "python", "-I", "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", *arguments], cwd=release.work)
    run([*pip, "check"])


def _try(release: Release, environment: Path) -> str:
    """Try commands, public names and modules in an empty directory with an empty home."""
    place, own = _home(environment)
    python, ringfence = environment / "bin" / "python", environment / "bin" / "ringfence"
    version = run([ringfence, "--version"], cwd=place, env=own).strip()
    expect(version == f"ringfence {release.version}", f"`ringfence --version` prints {version!r}")
    verdict = run([ringfence, "doctor"], cwd=place, env=own).strip().splitlines()[-1]
    names = run([python, "-I", "-c", _NAMES], cwd=place, env=own).split()
    expect(names[1].startswith(str(environment)), f"not the installed package was imported: {names[1]}")
    modules = run([python, "-I", "-c", _MODULES, *_packages_of_extras()], cwd=place, env=own).strip()
    return f"{version}, {names[0]} public names, {modules} modules; doctor: {verdict}"


def _show_pages(environment: Path) -> int:
    place, own = _home(environment)
    ringfence = environment / "bin" / "ringfence"
    listed = run([ringfence, "help"], cwd=place, env=own)
    topics = [line.split()[0] for line in listed.splitlines() if line.startswith("  ")]
    expect(len(topics) > 50, f"`ringfence help` lists {len(topics)} pages only")

    def show(topic: str) -> None:
        page = run([ringfence, "help", topic], cwd=place, env=own)
        expect(page.startswith("# "), f"`ringfence help {topic}` shows no page:\n{page[:500]}")
        relative = re.findall(
            r"\]\((?!https?:)[^)]*\)",
            re.sub(r"`[^`]*`|^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL),
        )
        expect(not relative, f"`ringfence help {topic}` has links that lead nowhere: {relative}")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(show, topics))
    return len(topics)


def _home(environment: Path) -> tuple[Path, dict[str, str]]:
    place = environment.with_name(f"{environment.name}-home")
    place.mkdir(exist_ok=True)
    return place, {"HOME": str(place), "NO_COLOR": "1"}


def _packages_of_extras() -> list[str]:
    return sorted({name for extra in EXTRAS.values() for name in extra.packages})


def try_extras(release: Release) -> str:
    """Use what each extra is for without it: the message must name the command that installs it."""
    with zipfile.ZipFile(release.wheel) as wheel:
        metadata = email.message_from_bytes(wheel.read(f"ringfence-{release.version}.dist-info/METADATA"))
    provided = set(metadata.get_all("Provides-Extra", []))
    expect(
        provided == set(EXTRAS),
        f"EXTRAS of {__name__} differs from the wheel's: {sorted(provided ^ set(EXTRAS))}",
    )
    path = f"{release.installed / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    for name, extra in EXTRAS.items():
        home = release.work / "extras" / name
        (home / "project").mkdir(parents=True)
        own = {"HOME": str(home), "PATH": path, "NO_COLOR": "1"}
        shown = run(
            ["bash", "-c", extra.use],
            cwd=home / "project",
            env=own,
            expected=(1, 2, 77, 78, 125),
            timeout_s=60,
        )
        wanted = f"pip install 'ringfence[{name}]'"
        expect(
            wanted in shown.strip().splitlines()[-1],
            f"without the extra {name!r}, {wanted!r} is not named:\n{shown}",
        )
    return f"the messages name {', '.join(EXTRAS)}"


def try_demo(release: Release) -> str:
    """Run the demo with the installed program; the checkout gives the example and the script only."""
    own = {
        "DEMO_RINGFENCE": str(release.installed / "bin" / "ringfence"),
        "TMPDIR": str(release.work),
        "HOME": str(release.work),
    }
    shown = run([release.root / "scripts" / "demo.sh"], cwd=release.work, env=own)
    expect("Done: verified" in shown, f"the demo did not end verified:\n{shown[-4000:]}")
    return (
        next(line.strip() for line in shown.splitlines() if "Done: verified" in line)
        .partition(" Everything")[0]
        .lstrip("# ")
    )
