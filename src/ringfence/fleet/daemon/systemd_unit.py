"""Renders the systemd unit of a fleet."""

import sys
from collections.abc import Mapping
from pathlib import Path

from ringfence.fleet.config.definition import Fleet

_END_S = 60
_WATCHDOG_S = 60
_KEPT_VARIABLES = ("RINGFENCE_STATE_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "PATH")


def unit_of(fleet: Fleet, environ: Mapping[str, str]) -> str:
    """The text of a unit for the user's own systemd: `~/.config/systemd/user/NAME.service`.

    Args:
        fleet: The fleet.
        environ: The caller's variables; the daemon must find state and programs in the same places.
    """
    command = [sys.executable, "-P", "-m", "ringfence", "fleet", "up", "--file", str(fleet.file)]
    variables = [
        f"Environment={_quoted(f'{name}={environ[name]}')}" for name in _KEPT_VARIABLES if environ.get(name)
    ]
    return "\n".join(
        [
            "[Unit]",
            f"Description=Ringfence fleet {fleet.settings.name}",
            "",
            "[Service]",
            "Type=notify",
            f"ExecStart={' '.join(_quoted(word, is_command=True) for word in command)}",
            "ExecReload=/bin/kill -HUP $MAINPID",
            *variables,
            f"WorkingDirectory={_escaped(fleet.file.parent)}",
            "Restart=on-failure",
            "RestartSec=5",
            "# Errors that a restart does not fix: a wrong command, or files that are invalid or not trusted.",
            "RestartPreventExitStatus=2 4 78",
            "# The daemon ends its workers itself, once their jobs have ended.",
            "KillMode=mixed",
            f"TimeoutStopSec={int(fleet.settings.drain) + _END_S}",
            "TimeoutStartSec=120",
            f"WatchdogSec={_WATCHDOG_S}",
            "# Sandboxes get control groups of their own below this one, for their limits.",
            "Delegate=yes",
            "",
            "[Install]",
            "WantedBy=default.target",
            "",
        ]
    )


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")


def _quoted(word: str, *, is_command: bool = False) -> str:
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{text.replace("$", "$$") if is_command else text}"'
