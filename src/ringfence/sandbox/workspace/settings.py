"""What the user's own git configuration says and a run takes over: name and address, and ignore rules."""

import os
import pwd
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.process import run_process
from ringfence.sandbox.workspace.actor import Actor
from ringfence.sandbox.workspace.git import git_program
from ringfence.sandbox.workspace.git_layout import GitLayout, read_config, read_small
from ringfence.sandbox.workspace.private_git import Identity


@dataclass(frozen=True)
class UserSettings:
    """Taken from the user's configuration, not from the workspace's."""

    identity: Identity = field(default_factory=Identity)
    excludes: bytes = b""
    """Contents of the user's own ignore file."""


async def read_settings(actor: Actor, layout: GitLayout | None) -> UserSettings:
    """Read the settings of a user. Git only parses files here; nothing a configuration names is run."""
    home = _home(actor)
    settings = await _global_settings(actor, home)
    local = (
        await actor.call(lambda: read_config(read_small(layout.common, b"config") or b"")) if layout else {}
    )
    merged = settings | {key: value for key, value in local.items() if key.startswith("user.")}
    identity = Identity(merged.get("user.name") or "agent", merged.get("user.email") or "agent@localhost")
    named = settings.get("core.excludesfile")
    file = home / named.removeprefix("~/") if named else _config_home(actor, home) / "git" / "ignore"
    excludes = await actor.call(lambda: read_small(file.parent, os.fsencode(file.name)) or b"")
    return UserSettings(identity, excludes)


async def _global_settings(actor: Actor, home: Path) -> dict[str, str]:
    env = {"HOME": str(home), "XDG_CONFIG_HOME": str(_config_home(actor, home)), "GIT_CONFIG_NOSYSTEM": "1"}
    if not actor.switches and "GIT_CONFIG_GLOBAL" in os.environ:
        env["GIT_CONFIG_GLOBAL"] = os.environ["GIT_CONFIG_GLOBAL"]
    command = [git_program(), "config", "--global", "--includes", "-z", "--list"]
    found: dict[str, str] = {}
    with suppress(InfrastructureFault):
        result = await run_process(
            command,
            env=env,
            cwd=Path("/"),
            timeout_s=10.0,
            output_limit_bytes=1024**2,
            user=actor.process_user,
            group=actor.process_group,
        )
        for entry in result.stdout.decode("utf-8", "replace").split("\0"):
            key, _, value = entry.partition("\n")
            found[key.lower()] = value
    return found


def _home(actor: Actor) -> Path:
    if not actor.switches:
        return Path.home()
    with suppress(KeyError):
        return Path(pwd.getpwuid(actor.uid).pw_dir)
    return Path("/nonexistent")


def _config_home(actor: Actor, home: Path) -> Path:
    named = os.environ.get("XDG_CONFIG_HOME", "") if not actor.switches else ""
    return Path(named) if named.startswith("/") else home / ".config"
