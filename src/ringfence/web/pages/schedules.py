"""Handles the page of the schedules of all agents."""

from collections.abc import Mapping

from starlette.requests import Request

from ringfence.web.client import ApiClient, ApiError
from ringfence.web.renderer import NextPage, Page

_CONFIRMATIONS = {"pause": "The schedule is paused.", "resume": "The schedule is resumed."}


async def list_schedules(_request: Request, api: ApiClient) -> Page:
    """The table of schedules, ordered by their next due time."""
    found = await api.get("schedules")
    return Page("schedules", {"schedules": sorted(found, key=lambda each: str(each["next_at"] or "~"))})


async def act(request: Request, api: ApiClient, _form: Mapping[str, str]) -> str | NextPage:
    """Pause or resume a schedule, or run it now."""
    where = request.path_params
    if where["action"] == "run":
        created = await api.post("schedules", where["agent"], where["name"], "run")
        return NextPage(f"/jobs/{created['job']['id']}")
    if where["action"] not in _CONFIRMATIONS:
        raise ApiError(404, f"there is no action {where['action']!r}")
    await api.post("schedules", where["agent"], where["name"], where["action"])
    return _CONFIRMATIONS[where["action"]]
