"""Handles the pages of agents: the list, and an agent with its configuration, triggers and history."""

from collections.abc import Mapping

from starlette.requests import Request

from ringfence.web.client import ApiClient, ApiError
from ringfence.web.renderer import NextPage, Page

_HISTORY = 20


async def list_agents(_request: Request, api: ApiClient) -> Page:
    """The table of agents."""
    return Page("agents", {"agents": await api.get("agents")})


async def show_agent(request: Request, api: ApiClient) -> Page:
    """An agent."""
    name = request.path_params["name"]
    agent = await api.get("agents", name)
    jobs = await api.get("jobs", agent=name, limit=_HISTORY)
    grants = [each for each in await api.get("grants") if each["agent"] == name]
    return Page("agent", {"agent": agent, "jobs": jobs, "grants": grants})


async def act(request: Request, api: ApiClient, form: Mapping[str, str]) -> str | NextPage:
    """Enable or disable an agent, or start a job of the agent."""
    name, action = request.path_params["name"], request.path_params["action"]
    if action == "start":
        prompt = form.get("prompt", "").strip()
        created = await api.post("agents", name, "jobs", body={"prompt": prompt} if prompt else {})
        return NextPage(f"/jobs/{created['job']['id']}")
    if action not in ("enable", "disable"):
        raise ApiError(404, f"there is no action {action!r}")
    await api.post("agents", name, action)
    return "The agent is enabled." if action == "enable" else "The agent is disabled; running jobs continue."
