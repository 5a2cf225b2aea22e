"""Handles the pages of this machine's loops: the list, and a loop's report with its verdicts and their evidence."""

from starlette.requests import Request

from ringfence.web.client import ApiClient
from ringfence.web.renderer import Page


async def list_loops(_request: Request, api: ApiClient) -> Page:
    """The table of loops."""
    return Page("loops", {"loops": await api.get("loops")})


async def show_loop(request: Request, api: ApiClient) -> Page:
    """A loop with its stories and roles, and the verdict on each criterion."""
    report = await api.get("loops", request.path_params["id"])
    passed = sum(story["state"] == "passed" for story in report["stories"])
    return Page("loop", {"loop_report": report, "passed": passed})
