"""What the steps of `make release-check` share: the release, and how they start programs."""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SHOWN_CHARS = 4000
_KEPT = re.compile(r"(LANG|TERM|TMPDIR|PATH|CI|(PIP|UV|SSL|REQUESTS|CURL)_\w+|\w+_proxy|\w+_PROXY)\Z")
"""Variables that installers need. Others, such as PYTHONPATH and RINGFENCE_*, would change what is tried."""


class CheckFailed(Exception):
    """A check of the release failed; the text says which, and shows the output of its program."""


@dataclass(frozen=True)
class Release:
    """The release that is checked, and where."""

    root: Path
    work: Path
    """A temporary directory, for everything but the results."""
    python: str
    """The interpreter that installs the packages."""
    outside: bool
    """Whether links to other hosts are requested."""

    @property
    def version(self) -> str:
        """The version in the code."""
        text = (self.root / "src" / "ringfence" / "__init__.py").read_text()
        found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
        if found is None:
            raise CheckFailed("src/ringfence/__init__.py has no __version__")
        return found[1]

    @property
    def built(self) -> Path:
        """Where sdist and wheel are."""
        return self.work / "built"

    @property
    def wheel(self) -> Path:
        """The wheel."""
        return self.built / f"ringfence-{self.version}-py3-none-any.whl"

    @property
    def sdist(self) -> Path:
        """The source distribution."""
        return self.built / f"ringfence-{self.version}.tar.gz"

    @property
    def sbom(self) -> Path:
        """The list of what the wheel and its dependencies consist of."""
        return self.built / f"ringfence-{self.version}.cdx.json"

    @property
    def tools(self) -> Path:
        """The programs that build and judge."""
        return self.work / "tools" / "bin"

    @property
    def installed(self) -> Path:
        """The environment in which the wheel is installed, without extras."""
        return self.work / "wheel-environment"


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 300,
    expected: Sequence[int] = (0,),
) -> str:
    """Run a program without the caller's own variables, and return its output, both streams.

    Raises:
        CheckFailed: It ended with another code than the expected ones, or not in time.
    """
    words = [str(word) for word in command]
    kept = {name: value for name, value in os.environ.items() if _KEPT.match(name)}
    home = {"HOME": os.environ.get("HOME", "/")}
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**home, **kept, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise CheckFailed(f"{' '.join(words)[:200]}: {exc}") from exc
    if done.returncode not in expected:
        text = f"{' '.join(words)[:200]} ended with {done.returncode}"
        raise CheckFailed(f"{text}\n{done.stdout[-_SHOWN_CHARS:]}")
    return done.stdout


def expect(condition: bool, text: str) -> None:
    """Raise `CheckFailed` with the text unless the condition holds."""
    if not condition:
        raise CheckFailed(text)
