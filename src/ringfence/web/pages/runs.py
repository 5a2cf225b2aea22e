"""Handles the pages of single runs on this machine."""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from ringfence.web.client import ApiClient, ApiError
from ringfence.web.log import log_values
from ringfence.web.pages.changes import read_changes
from ringfence.web.renderer import Page

_PAGE_SIZE = 50
_CONFIRMATIONS = {
    "apply": "The changes are applied to the workspace.",
    "undo": "The changes are undone in the workspace.",
}


async def list_runs(request: Request, api: ApiClient) -> Page:
    """The table of runs."""
    query = request.query_params
    found = await api.get("runs", before=query.get("before"), limit=_PAGE_SIZE + 1)
    older = found[_PAGE_SIZE - 1]["id"] if len(found) > _PAGE_SIZE else None
    return Page(
        "runs", {"runs": found[:_PAGE_SIZE], "older": older, "requests": await api.get("apply-requests")}
    )


async def show_log(request: Request, api: ApiClient) -> Page:
    """A run with its log."""
    run = await _read_run(request, api)
    values = await log_values(request, api, "runs", run["id"], is_over=run["state"] != "running")
    return _run_page("log", run, values)


async def show_changes(request: Request, api: ApiClient) -> Page:
    """A run with the changes that it made."""
    run = await _read_run(request, api)
    return _run_page("changes", run, await read_changes(request, api, "runs", run["id"]))


async def show_record(request: Request, api: ApiClient) -> Page:
    """A run with the verification of its record."""
    run = await _read_run(request, api)
    return _run_page("record", run, {"record": await api.get("runs", run["id"], "record")})


async def act(request: Request, api: ApiClient, _form: Mapping[str, str]) -> str:
    """Apply or undo the changes of a run."""
    action = request.path_params["action"]
    if action not in _CONFIRMATIONS:
        raise ApiError(404, f"there is no action {action!r}")
    await api.post("runs", request.path_params["id"], action)
    return _CONFIRMATIONS[action]


async def _read_run(request: Request, api: ApiClient) -> dict[str, Any]:
    return dict(await api.get("runs", request.path_params["id"]))


def _run_page(tab: str, run: dict[str, Any], values: Mapping[str, Any]) -> Page:
    is_over = run["state"] != "running"
    return Page("run", {"run": run, "tab": tab, "is_over": is_over, "base": "runs", **values})
