"""`ringfence init --claude-code`: configures `claude` in a project to work in sandboxes only, and undoes it."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.cli.output import note

if TYPE_CHECKING:
    from ringfence.integrations.claude_code import Change


def configure(project: Path, *, force: bool) -> None:
    """Write the configuration, and say what it means."""
    from ringfence.integrations.claude_code import SERVER_NAME, install

    change = install(project, _server_command(), replace=force)
    _report(change, nothing="nothing to change: the configuration is there already")
    if find_spec("mcp") is None:
        note("the server needs an extra that is not installed: pip install 'ringfence[mcp]'")
    note("denied: every tool of claude's own (shell, files, web, agents), and the tools of other MCP servers")
    note("allowed: the tools of `ringfence mcp`; changes wait in the sandbox for `ringfence apply`")
    note(
        "start claude in this directory, since in others these settings do not count; `claude -p` also needs "
        f"`--allowedTools mcp__{SERVER_NAME}` until you have trusted the directory"
    )
    for file, keys in change.other_settings.items():
        note(
            f"also in effect: {', '.join(keys)} in {file}; see that they start nothing that you do not trust"
        )
    note("take it back with `ringfence init --claude-code --remove`")


def unconfigure(project: Path) -> None:
    """Remove the configuration, and say what was kept."""
    from ringfence.integrations.claude_code import remove

    change = remove(project)
    _report(change, nothing="nothing to remove: the configuration is not there")
    for entry in change.kept:
        note(f"kept {entry}, since it was changed; remove it yourself if you do not need it")


def _report(change: "Change", *, nothing: str) -> None:
    for file in change.written:
        note(f"wrote {file}")
    for file in change.removed:
        note(f"removed {file}")
    if not change.written and not change.removed:
        note(nothing)


def _server_command() -> tuple[str, ...]:
    """Return how claude starts this installation; by its name alone where PATH leads to it, for the project's others."""
    own = Path(sys.executable).parent / "ringfence"
    if not own.is_file():
        return (sys.executable, "-m", "ringfence", "mcp")
    found = shutil.which("ringfence")
    is_on_path = found is not None and Path(found).samefile(own)
    return ("ringfence" if is_on_path else str(own), "mcp")
