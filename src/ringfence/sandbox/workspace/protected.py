"""Files in a workspace that the host runs or trusts by itself, and what is done about each.

`read_only`: where the file is there, it is mounted read-only upon itself. `reported`: it may be changed, it
is a part of ordinary work, and a change is named as "runs on your machine". One that is absent cannot be
mounted upon without making it, which would be a change of its own: if an agent makes it, it is reported.

Not in the table, on purpose: code that runs only when you run the project (Makefile, package.json,
conftest.py, setup.py, Dockerfile, and what ignored directories hold). Changing that is what the agent is for;
look at the diff.
"""

import os
import stat
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from ringfence.config.path_pattern import PathPatterns
from ringfence.errors import PolicyRefused
from ringfence.frozen import frozen
from ringfence.sandbox.base import Overlay
from ringfence.sandbox.workspace.git_layout import has_git
from ringfence.sandbox.workspace.tree import Tree
from ringfence.sandbox.workspace.ways_out import covers_for

_MAX_GIT_ENTRIES = 200
_MAX_PROTECTED = 500
_MAX_WALKED = 5_000_000
Treatment = Literal["read_only", "reported"]


@frozen
class Protected:
    """One file or directory, by its path in the workspace."""

    path: str
    treatment: Treatment
    because: str
    anywhere: bool = False
    """Whether it is reported in subdirectories as well; only the one at the top can be mounted read-only."""


PROTECTED = (
    Protected("ringfence.yaml", "read_only", "ringfence reads it before it builds the fence"),
    Protected("ringfence.yml", "read_only", "ringfence reads it before it builds the fence"),
    Protected(".ringfence", "read_only", "ringfence reads it before it builds the fence"),
    Protected(".claude", "read_only", "Claude Code runs hooks and grants permissions from it", anywhere=True),
    Protected(".mcp.json", "read_only", "coding agents start the servers it names", anywhere=True),
    Protected(".cursor", "read_only", "Cursor starts the servers and follows the rules in it", anywhere=True),
    Protected(".codex", "read_only", "Codex takes its permissions from it", anywhere=True),
    Protected(".gemini", "read_only", "Gemini CLI takes its permissions from it", anywhere=True),
    Protected(".roo", "read_only", "Roo Code starts the servers and follows the rules in it", anywhere=True),
    Protected(".kiro", "read_only", "Kiro runs hooks and starts the servers it names", anywhere=True),
    Protected(".continue", "read_only", "Continue starts the servers and follows the rules in it", anywhere=True),
    Protected(".windsurf", "read_only", "Windsurf follows the rules and workflows in it", anywhere=True),
    Protected("opencode.json", "read_only", "opencode starts servers and takes permissions from it", anywhere=True),
    Protected("opencode.jsonc", "read_only", "opencode starts servers and takes permissions from it", anywhere=True),
    Protected(".opencode", "read_only", "opencode runs the plugins in it", anywhere=True),
    Protected(".aider.conf.yml", "read_only", "aider runs the commands it names", anywhere=True),
    Protected("CLAUDE.md", "reported", "Claude Code follows it unasked, on the host, too", anywhere=True),
    Protected("CLAUDE.local.md", "reported", "Claude Code follows it unasked, on the host, too", anywhere=True),
    Protected("AGENTS.md", "reported", "coding agents follow it unasked, on the host, too", anywhere=True),
    Protected("AGENTS.override.md", "reported", "Codex follows it unasked, on the host, too", anywhere=True),
    Protected(".agents", "reported", "coding agents take skills from it, on the host, too", anywhere=True),
    Protected(".cursorrules", "reported", "Cursor follows it unasked, on the host, too", anywhere=True),
    Protected(".windsurfrules", "reported", "Windsurf follows it unasked, on the host, too", anywhere=True),
    Protected("GEMINI.md", "reported", "Gemini CLI follows it unasked, on the host, too", anywhere=True),
    Protected(".clinerules", "reported", "Cline follows it unasked, on the host, too", anywhere=True),
    Protected(".github/copilot-instructions.md", "reported", "Copilot follows it unasked, on the host, too"),
    Protected(".github/instructions", "reported", "Copilot follows it unasked, on the host, too"),
    Protected(".vscode", "read_only", "VS Code runs tasks and interpreters it names", anywhere=True),
    Protected("*.code-workspace", "reported", "VS Code takes tasks and settings from it", anywhere=True),
    Protected(".idea", "read_only", "JetBrains editors run what it configures", anywhere=True),
    Protected(".zed", "read_only", "Zed runs the tasks and servers it names", anywhere=True),
    Protected(".helix", "read_only", "Helix starts the language servers its languages.toml names", anywhere=True),
    Protected(".nvim.lua", "read_only", "Neovim runs it on start", anywhere=True),
    Protected(".nvimrc", "read_only", "Neovim runs it on start where exrc is set", anywhere=True),
    Protected(".lazy.lua", "read_only", "Neovim's lazy.nvim runs it on start", anywhere=True),
    Protected(".vimrc", "read_only", "Vim runs it on start where exrc is set", anywhere=True),
    Protected(".exrc", "read_only", "vi runs it on start", anywhere=True),
    Protected(".dir-locals.el", "read_only", "Emacs follows it for files beside it", anywhere=True),
    Protected(".Rprofile", "read_only", "R runs it on start", anywhere=True),
    Protected(".pdbrc", "read_only", "Python's debugger runs it", anywhere=True),
    Protected(".irbrc", "read_only", "Ruby's irb runs it on start", anywhere=True),
    Protected(".pryrc", "read_only", "Ruby's pry runs it on start", anywhere=True),
    Protected(".iex.exs", "read_only", "Elixir's iex runs it on start", anywhere=True),
    Protected(".ghci", "read_only", "GHCi runs it on start", anywhere=True),
    Protected(".ocamlinit", "read_only", "OCaml's toplevel runs it on start", anywhere=True),
    Protected(".devcontainer", "read_only", "editors run its commands, some of them on the host"),
    Protected(".devcontainer.json", "read_only", "editors run its commands, some of them on the host"),
    Protected(".envrc", "read_only", "direnv runs it when you enter the directory", anywhere=True),
    Protected(".env", "reported", "many tools load it into their environment", anywhere=True),
    Protected("mise.toml", "read_only", "mise runs hooks and sets the environment from it", anywhere=True),
    Protected(".mise.toml", "read_only", "mise runs hooks and sets the environment from it", anywhere=True),
    Protected("mise.local.toml", "read_only", "mise runs hooks and sets the environment from it", anywhere=True),
    Protected(".mise.local.toml", "read_only", "mise runs hooks and sets the environment from it", anywhere=True),
    Protected(".config/mise.toml", "read_only", "mise runs hooks and sets the environment from it", anywhere=True),
    Protected(".config/mise", "read_only", "mise runs hooks and sets the environment from it", anywhere=True),
    Protected(".mise/config.toml", "read_only", "mise runs hooks and sets the environment from it", anywhere=True),
    Protected("mise/config.toml", "read_only", "mise runs hooks and sets the environment from it", anywhere=True),
    Protected(".tool-versions", "reported", "version managers pick programs by it", anywhere=True),
    Protected(".husky", "read_only", "git hooks live in it"),
    Protected(".githooks", "read_only", "git hooks live in it where core.hooksPath says so"),
    Protected(".pre-commit-config.yaml", "read_only", "pre-commit's hook runs what it names at each commit"),
    Protected("lefthook.yml", "read_only", "lefthook's hook runs what it names at each commit"),
    Protected("lefthook.yaml", "read_only", "lefthook's hook runs what it names at each commit"),
    Protected(".lefthook.yml", "read_only", "lefthook's hook runs what it names at each commit"),
    Protected(".lefthook.yaml", "read_only", "lefthook's hook runs what it names at each commit"),
    Protected("lefthook-local.yml", "read_only", "lefthook's hook runs what it names, over what lefthook.yml says"),
    Protected("lefthook-local.yaml", "read_only", "lefthook's hook runs what it names, over what lefthook.yml says"),
    Protected(".lefthook-local.yml", "read_only", "lefthook's hook runs what it names, over what lefthook.yml says"),
    Protected(".lefthook-local.yaml", "read_only", "lefthook's hook runs what it names, over what lefthook.yml says"),
    Protected(".overcommit.yml", "read_only", "overcommit's hook runs what it names at each commit"),
    Protected(".hg", "read_only", "Mercurial runs hooks and extensions that it names", anywhere=True),
    Protected(".jj", "read_only", "Jujutsu runs programs that it names, and the git that it leads to", anywhere=True),
    Protected(".gitattributes", "reported", "it sends files through filters of your git", anywhere=True),
    Protected(".gitmodules", "reported", "git fetches from the addresses in it", anywhere=True),
    Protected(".github/workflows", "read_only", "GitHub runs it with your repository's secrets"),
    Protected(".github/actions", "read_only", "GitHub runs it with your repository's secrets"),
    Protected(".gitlab-ci.yml", "read_only", "GitLab runs it with your project's secrets"),
    Protected(".circleci", "read_only", "CircleCI runs it with your project's secrets"),
    Protected(".buildkite", "read_only", "Buildkite runs it with your project's secrets"),
    Protected("Jenkinsfile", "read_only", "Jenkins runs it with its credentials"),
    Protected("azure-pipelines.yml", "read_only", "Azure runs it with your project's secrets"),
    Protected("bitbucket-pipelines.yml", "read_only", "Bitbucket runs it with your project's secrets"),
    Protected(".travis.yml", "read_only", "Travis runs it with your project's secrets"),
    Protected(".woodpecker.yml", "read_only", "Woodpecker runs it with your repository's secrets"),
    Protected(".woodpecker.yaml", "read_only", "Woodpecker runs it with your repository's secrets"),
    Protected(".woodpecker", "read_only", "Woodpecker runs it with your repository's secrets"),
    Protected(".drone.yml", "read_only", "Drone runs it with your repository's secrets"),
    Protected(".gitea", "read_only", "Gitea runs its workflows with your repository's secrets"),
    Protected(".forgejo", "read_only", "Forgejo runs its workflows with your repository's secrets"),
    Protected("appveyor.yml", "read_only", "AppVeyor runs it with your project's secrets"),
    Protected(".appveyor.yml", "read_only", "AppVeyor runs it with your project's secrets"),
    Protected(".npmrc", "read_only", "npm takes registries and scripts' shell from it", anywhere=True),
    Protected(".yarnrc", "read_only", "yarn takes its own program from it", anywhere=True),
    Protected(".yarnrc.yml", "read_only", "yarn takes its own program and plugins from it", anywhere=True),
    Protected(".yarn/plugins", "read_only", "yarn runs what is in it at each command", anywhere=True),
    Protected(".yarn/releases", "read_only", "yarn is run from it", anywhere=True),
    Protected("bunfig.toml", "read_only", "bun takes registries and scripts to run first from it", anywhere=True),
    Protected(".pnpmfile.cjs", "read_only", "pnpm runs it at each install", anywhere=True),
    Protected(".pnpmfile.mjs", "read_only", "pnpm runs it at each install", anywhere=True),
    Protected(".cargo", "read_only", "cargo takes linkers, wrappers and runners from it", anywhere=True),
    Protected("rust-toolchain.toml", "reported", "rustup picks the compiler by it, which may be a path", anywhere=True),
    Protected("rust-toolchain", "reported", "rustup picks the compiler by it, which may be a path", anywhere=True),
    Protected(".bazelrc", "read_only", "bazel takes options, programs and servers to trust from it", anywhere=True),
    Protected("tools/bazel", "read_only", "bazel's launcher runs it in bazel's place"),
    Protected("pip.conf", "read_only", "pip takes its indexes from it"),
    Protected(".pypirc", "read_only", "uploads take their address from it"),
    Protected(".netrc", "read_only", "it holds credentials"),
    Protected(".gdbinit", "read_only", "gdb runs it", anywhere=True),
    Protected(".lldbinit", "read_only", "lldb runs it", anywhere=True),
    Protected(".editorconfig", "reported", "editors follow it; it runs nothing, but decides what is written"),
)  # fmt: skip
"""The table. The git directory itself is not in it: it is replaced, see `private_git`."""
TRUSTED_NAMES = frozenset(entry.path.rpartition("/")[2].lower() for entry in PROTECTED)
"""What `is_trusted` can hold for, by the last part of the path; a row with a `*` is looked for in changes only."""
_STARRED = tuple(entry for entry in PROTECTED if "*" in entry.path)
"""Names by a pattern: one in any directory."""


def overlays_for(
    workspace: Path,
    *,
    source: Path | None = None,
    git_entries: Iterable[bytes] = (),
    protect: Collection[str] = (),
    covered: Collection[bytes] = (),
) -> tuple[Overlay, ...]:
    """Read-only mounts of what is there, each with its parents mounted upon themselves.

    A directory that something is mounted on cannot be renamed or removed, so its place cannot be taken by
    another; this is why each parent, too, is mounted. Links are left alone: a mount would follow them. They
    are reported.

    Args:
        workspace: Path inside.
        source: Directory on the host that is shown there, if another.
        git_entries: Every `.git` below the workspace's own; these become read-only too.
        protect: Further patterns, as in `.gitignore`, of what may not be written. Each file or directory that
            is there and matches is mounted; what appears later is reported.
        covered: Sockets and the like, which are covered.

    Raises:
        PolicyRefused: There are more git repositories, sockets, or files that match, than can be mounted.
    """
    source = source or workspace
    paths = [os.fsencode(entry.path) for entry in PROTECTED if entry.treatment == "read_only"]
    git_entries = tuple(git_entries)
    if len(git_entries) > _MAX_GIT_ENTRIES:
        raise PolicyRefused(
            f"{len(git_entries)} git repositories lie in the workspace, and {_MAX_GIT_ENTRIES} can be guarded;"
            " remove some (`ringfence diff --flagged` names those that a run made), or use mode 'clone'",
            rule="too-many-repositories",
        )
    overlays: dict[bytes, bool] = {}
    with Tree(source) as tree:
        for path in (*paths, *git_entries, *_matching(tree, protect)):
            status = tree.lstat(path)
            if status is None or not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                continue
            overlays |= dict.fromkeys(_above(path), False) | overlays | {path: True}
    for path in covered:
        # In the user's own git directory nothing can be renamed: it is replaced, or read-only as a whole.
        overlays |= dict.fromkeys(_above(path) if not path.startswith(b".git/") else (), False) | overlays
    upon_themselves = tuple(
        # What lies in a read-only place is not opened again by a mount that only holds it there.
        Overlay(
            source / os.fsdecode(path),
            workspace / os.fsdecode(path),
            read_only=read_only or any(overlays.get(above) for above in _above(path)),
        )
        for path, read_only in sorted(overlays.items(), key=lambda item: (item[0].count(b"/"), item[0]))
    )
    # The last: what is mounted upon itself would show a socket in it again.
    return upon_themselves + covers_for(workspace, covered)


def _above(path: bytes) -> list[bytes]:
    """The directories above a path, but for the top."""
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]


def matches_any(paths: Iterable[str], patterns: Collection[str]) -> list[str]:
    """Those of `paths` that a pattern, as in `.gitignore`, matches."""
    if not patterns:
        return []
    spec = PathPatterns(patterns)
    return [path for path in paths if spec.match(path)]


def _matching(tree: Tree, patterns: Collection[str]) -> list[bytes]:
    """What is in the tree and matches: directories whole, not what is in them again."""
    if not patterns:
        return []
    spec = PathPatterns(patterns)
    found: set[bytes] = set()
    seen = 0
    for folder, names in tree.walk(_MAX_WALKED):
        seen += len(names)
        if _lies_in(folder, found):
            continue
        if folder and spec.match(os.fsdecode(folder) + "/"):
            found.add(folder)
            continue
        paths = (folder + b"/" + os.fsencode(name) if folder else os.fsencode(name) for name in names)
        found |= {path for path in paths if spec.match(os.fsdecode(path))}
        if len(found) > _MAX_PROTECTED or seen >= _MAX_WALKED:
            raise PolicyRefused(
                f"the patterns {list(patterns)!r} of sandbox.protect match more than {_MAX_PROTECTED} paths, or "
                f"the workspace holds more than {_MAX_WALKED}; protect whole directories, like 'fixtures/'",
                rule="too-many-protected",
            )
    return sorted(found)


def _lies_in(path: bytes, folders: Collection[bytes]) -> bool:
    parts = path.split(b"/")
    return any(b"/".join(parts[:depth]) in folders for depth in range(1, len(parts) + 1))


def guard_git(workspace: Path) -> tuple[Overlay, ...]:
    """A read-only mount of the workspace's `.git`, for when it is not replaced by a private one.

    Raises:
        PolicyRefused: It is a link or stranger: a mount would land elsewhere, and git would follow it.
    """
    git = workspace / ".git"
    if not has_git(workspace):
        return ()
    kind = git.lstat().st_mode
    if not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
        raise PolicyRefused(
            f"{str(git)!r} is neither a directory nor a file and cannot be guarded; use mode 'clone'",
            rule="git-link",
        )
    return (Overlay(git, git, read_only=True),)


def flag(changed: Iterable[str]) -> list[str]:
    """Those of the changed paths that run, or are trusted, on the user's machine without being asked for."""
    paths = sorted(set(changed))
    repositories = _bare_repositories(paths)
    return [path for path in paths if is_trusted(path) or path in repositories]


def reason(path: str) -> str:
    """Why a path was flagged."""
    if any(part.lower() == ".git" for part in path.split("/")):
        return "git runs hooks and programs that it names"
    entry = next((entry for entry in PROTECTED if _matches(path, entry)), None)
    return (
        entry.because if entry else "git takes the directory for a repository and runs programs that it names"
    )


def is_trusted(path: str) -> bool:
    """Whether the host runs or trusts a file at this path, or in this directory, by its name."""
    # File systems that do not tell upper from lower case take `.GIT` for `.git`.
    parts = path.lower().split("/")
    if ".git" in parts:
        return True
    rows = _STARRED if TRUSTED_NAMES.isdisjoint(parts) else PROTECTED
    return any(_matches(path, entry) for entry in rows)


def is_run(path: str) -> bool:
    """Whether a row says so that an agent must not write to."""
    return any(entry.treatment == "read_only" and _matches(path, entry) for entry in PROTECTED)


def _matches(path: str, entry: Protected) -> bool:
    parts, wanted = path.lower().split("/"), entry.path.lower().split("/")
    places = (
        range(len(parts) - len(wanted) + 1) if entry.anywhere else range(min(1, len(parts) - len(wanted) + 1))
    )
    if "*" in entry.path:
        return any(fnmatchcase(part, wanted[-1]) for part in parts)
    return any(parts[place : place + len(wanted)] == wanted for place in places)


def _bare_repositories(paths: Iterable[str]) -> set[str]:
    """HEAD and config of directories that git would take for a repository, whatever their name."""
    folders = set()
    for path in paths:
        parts = path.split("/")
        if parts[-1] == "HEAD":
            folders.add("/".join(parts[:-1]))
        folders |= {
            "/".join(parts[:i]) for i, part in enumerate(parts[:-1]) if part in {"refs", "objects", "hooks"}
        }
    return {f"{folder}/{name}".lstrip("/") for folder in folders for name in ("HEAD", "config")}
