"""Handles the pages of workers and of this machine's state."""

from collections.abc import Mapping

from starlette.requests import Request

from ringfence.web.client import ApiClient, ApiError
from ringfence.web.renderer import Page

_CONFIRMATIONS = {
    "drain": "The worker starts no more jobs; those that run end.",
    "resume": "The worker starts jobs again.",
}


async def list_workers(_request: Request, api: ApiClient) -> Page:
    """The table of workers."""
    return Page("workers", {"workers": await api.get("workers")})


async def act(request: Request, api: ApiClient, _form: Mapping[str, str]) -> str:
    """Drain, resume or remove a worker."""
    name, action = request.path_params["id"], request.path_params["action"]
    if action == "remove":
        await api.delete("workers", name)
        return "The worker is removed; its jobs run elsewhere."
    if action not in _CONFIRMATIONS:
        raise ApiError(404, f"there is no action {action!r}")
    await api.post("workers", name, action)
    return _CONFIRMATIONS[action]


async def show_doctor(_request: Request, api: ApiClient) -> Page:
    """The isolation that this machine supports."""
    return Page("doctor", {"report": await api.get("doctor")})
