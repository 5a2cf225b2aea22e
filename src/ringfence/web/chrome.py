"""Loads the contents of the frame around every page: the navigation with its counts, and the state of the fleet."""

from typing import Any

from ringfence import __version__
from ringfence.web.client import ApiClient, ApiError, ApiUnreachable

_FLEET = (
    ("inbox", "Inbox", "waiting"),
    ("jobs", "Jobs", "active"),
    ("agents", "Agents", ""),
    ("schedules", "Schedules", ""),
    ("spend", "Spend", ""),
    ("workers", "Workers", ""),
)
_MACHINE = (("runs", "Runs", ""), ("loops", "Loops", ""), ("doctor", "Doctor", ""))
FLEET_PATHS = tuple(f"/{path}" for path, _, _ in _FLEET)
"""The paths of the pages of the fleet."""
NO_DAEMON = (
    "The fleet's daemon does not run. Pages show what is stored; nothing starts until `ringfence fleet up`."
)


async def load_chrome(api: ApiClient) -> dict[str, Any]:
    """The values that the frame shows; its banner says so if the API cannot be reached."""
    status: dict[str, Any] = {}
    banner = ""
    try:
        status = await api.get("status")
    except ApiUnreachable as exc:
        banner = f"{exc}. Reconnecting …"
    except ApiError as exc:
        banner = "" if exc.status in (400, 404, 503) else str(exc)
    if status.get("fleet") and not status.get("pid"):
        banner = NO_DAEMON
    counts = {"inbox": status.get("inbox", 0), "jobs": status.get("active", 0)}
    return {
        "nav": [("Fleet", _entries(_FLEET, counts)), ("This machine", _entries(_MACHINE, counts))],
        "fleet": status.get("fleet") or "",
        "status": status if status.get("fleet") else None,
        "version": f"Ringfence {__version__}",
        "banner": banner,
    }


def _entries(rows: tuple[tuple[str, str, str], ...], counts: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {"path": path, "label": label, "unit": unit, "count": counts.get(path, 0)}
        for path, label, unit in rows
    ]
