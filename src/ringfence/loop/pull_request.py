"""Opens a pull request for a loop's branch with the user's own `gh`, if the user requests it."""

import os
import shutil
from pathlib import Path

import anyio

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.process import ProcessResult, run_process
from ringfence.sandbox.workspace.git.command import USERS, run_git
from ringfence.sandbox.workspace.run_as import Actor

_TIMEOUT_S = 300.0


def gh_program(source: Path) -> str:
    """Return the path of the user's `gh`; a `gh` in the repository, which an agent may have written, is not used.

    Raises:
        UsageError: There is no `gh` on the PATH outside of the repository.
    """
    found = shutil.which("gh")
    if found is None or Path(found).resolve().is_relative_to(source.resolve()):
        raise UsageError(
            "--pr needs GitHub's `gh` on your PATH, outside of the repository; install it and run `gh auth login`, "
            "or leave it out"
        )
    return str(Path(found).resolve())


async def open_pull_request(
    source: Path, branch: str, *, title: str, report: Path, base: str | None, attestation: str | None
) -> str:
    """Push the branch to `origin` and open a pull request, unless the branch has one. Return its URL.

    Args:
        source: The user's repository, whose configuration and hooks no agent could write.
        branch: The delivered branch.
        title: The title of the pull request.
        report: A file with the text of the pull request.
        base: The branch to merge into; None: the default of `gh`.
        attestation: The digest of the attestation that is attached to the branch's last commit, for the text; None:
            there is none.

    Raises:
        InfrastructureFault: git or `gh` failed; the branch is delivered, and the message says what to type.
    """
    where = ["--base", base] if base is not None else []
    pushed = await run_git(
        ["push", "origin", f"refs/heads/{branch}:refs/heads/{branch}"],
        cwd=source,
        env=users_environment(source),
        actor=Actor.current(),
        timeout_s=_TIMEOUT_S,
        bounds=USERS,
    )
    _check(pushed, "git push")
    gh = [gh_program(source), "pr"]
    # An earlier process may have opened it and died. `@me` excludes strangers, whose forks may have such a branch.
    known = ["--head", branch, "--author", "@me", "--state", "all", "--json", "url", "--jq", ".[].url"]
    output = await _run(source, [*gh, "list", *known])
    if not output.strip():
        words = ["--head", branch, "--title", title, "--body-file", "-", *where]
        text = await anyio.Path(report).read_bytes()
        if attestation is not None:
            text += (
                f"\nAttestation: `{attestation}`, a git note in `refs/notes/ringfence`; "
                f"`ringfence attest verify --tree . --commit {branch}` verifies it.\n"
            ).encode()
        output = await _run(source, [*gh, "create", *words], stdin=text)
    return output.strip().splitlines()[-1] if output.strip() else branch


async def _run(source: Path, words: list[str], *, stdin: bytes = b"") -> str:
    result = await run_process(
        words,
        stdin=stdin,
        cwd=source,
        env=users_environment(source),
        timeout_s=_TIMEOUT_S,
    )
    _check(result, f"{Path(words[0]).name} {words[1]}")
    return result.stdout.decode("utf-8", "replace")


def users_environment(source: Path) -> dict[str, str]:
    """Return the environment of the user's git and `gh`, without programs from the repository, and without prompts."""
    return {**os.environ, "PATH": _path(source), "GIT_TERMINAL_PROMPT": "0", "GH_PROMPT_DISABLED": "1"}


def _check(result: ProcessResult, what: str) -> None:
    if not result.ok:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        said = [
            line for line in lines if line.startswith(("fatal: ", "error: ", "remote: error: "))
        ] or lines[-1:]
        how = f"{what} failed: {said[0] if said else 'it took too long'}"
        raise InfrastructureFault(
            f"{how}; the branch is in your repository: `git push origin` it, then `gh pr create`"
        )


def _path(source: Path) -> str:
    """Return the user's PATH without directories in the repository, such as a virtual environment's.

    With this PATH, `gh` starts git, and git starts its helpers.
    """
    top, folders = source.resolve(), map(Path, os.environ.get("PATH", os.defpath).split(os.pathsep))
    outside = (each for each in folders if each.is_absolute() and not each.resolve().is_relative_to(top))
    return os.pathsep.join(map(str, outside))
