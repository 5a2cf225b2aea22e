"""Derives the configuration for the runs of each role, and for the runs of checks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringfence.config import Effective
from ringfence.config.document import Origin
from ringfence.config.model import Settings
from ringfence.job.resolution import DEFAULT_MODELS, is_set
from ringfence.loop.rows import Spent
from ringfence.loop.settings import LoopSettings, RoleName, RoleSettings
from ringfence.model.registry import needs_credential
from ringfence.runtime.registry import agent_cli_of, provider_of, runs_agent_cli


def effective_for(
    effective: Effective, settings: LoopSettings, role: RoleName, *, attempt: int, spent: Spent
) -> Effective:
    """Return the configuration of a role's run: the loop's, with the role's own model, sandbox and limits.

    No limit exceeds the rest of the loop's limits. The role works on a private copy, regardless of the mode.
    """
    choice, own, base = settings.who(role, attempt), settings.role(role), effective.settings
    runtime = choice.runtime or base.run.runtime
    is_other = provider_of(runtime) != provider_of(base.run.runtime)
    run = {
        "runtime": runtime,
        "model": choice.model or _model(effective, runtime, is_other_provider=is_other),
        "verify": None,
        "require_verified": False,
        "output_schema": None,
    }
    changed = base.model_copy(
        update={
            "run": base.run.model_copy(update=run),
            "limits": base.limits.model_copy(update=_limits(base, settings, own, spent)),
            "sandbox": base.sandbox.model_copy(update=_sandbox(own)),
            "client": base.client.model_copy(update=_client(base, is_other_provider=is_other)),
            "tools": base.tools.model_copy(update=_tools(base, role, runtime)),
        }
    )
    return Effective(
        changed,
        _origins(effective.origins, role, has_fence=own.sandbox is not None),
        effective.files,
        effective.loosened_by_files,
    )


def _tools(base: Settings, role: RoleName, runtime: str) -> dict[str, Any]:
    """Deny tools that run programs or write files to an agent CLI that reviews or judges.

    It runs inside the sandbox, where a program of the attempt could change its answer.
    """
    if role not in ("reviewer", "judge") or not runs_agent_cli(runtime):
        return {}
    return {"deny": tuple(dict.fromkeys((*base.tools.deny, *agent_cli_of(runtime).author_tools)))}


def _model(effective: Effective, runtime: str, *, is_other_provider: bool) -> str:
    """Return the loop's model, unless the role's provider does not have it."""
    model = effective.settings.run.model
    is_foreign = is_other_provider and needs_credential(model)
    if is_set(effective, "run.model") and not is_foreign:
        return model
    return DEFAULT_MODELS.get(runtime, Settings().run.model)


def _client(base: Settings, *, is_other_provider: bool) -> dict[str, Any]:
    """Drop program and arguments of the loop's agent CLI if the role runs another; those of `api` apply to any."""
    return {"path": None, "args": ()} if is_other_provider and base.run.runtime != "api" else {}


def _sandbox(own: RoleSettings) -> dict[str, Any]:
    """Return the role's sandbox; another backend does not use the loop's image."""
    if own.sandbox is not None:
        return {"mode": "clone", "backend": own.sandbox, "image": own.image}
    return {"mode": "clone", **({"image": own.image} if own.image is not None else {})}


def _limits(base: Settings, settings: LoopSettings, own: RoleSettings, spent: Spent) -> dict[str, Any]:
    """Return the role's limits, or the run's, but no more than the rest of the loop's limits."""
    limits: dict[str, Any] = {
        name: value
        for name, value in {
            "turns": own.turns, "tokens": own.tokens, "cost_usd": own.cost_usd, "wall_clock": own.wall_clock,
        }.items()
        if value is not None
    }  # fmt: skip
    tokens = limits.get("tokens", base.limits.tokens)
    limits["tokens"] = max(1, min(tokens, settings.limits.tokens - spent.tokens))
    if settings.limits.cost_usd is not None:
        left = max(0.000001, settings.limits.cost_usd - spent.cost_usd)
        own_cost = limits.get("cost_usd", base.limits.cost_usd)
        limits["cost_usd"] = left if own_cost is None else min(own_cost, left)
    return limits


def effective_for_checks(effective: Effective) -> Effective:
    """Return the configuration of checks: on a private copy of the workspace, and without injected secrets."""
    settings = effective.settings
    changed = {
        "sandbox": settings.sandbox.model_copy(update={"mode": "clone"}),
        "egress": settings.egress.model_copy(update={"swap": ()}),
    }
    return replace(effective, settings=settings.model_copy(update=changed))


def _origins(origins: Mapping[str, Origin], role: RoleName, *, has_fence: bool) -> Mapping[str, Origin]:
    """Return the origins of values: runtime and model are the role's, so that no default of a runtime replaces them."""
    said = Origin("project", name=f"loop.roles.{role}")
    fence = {"sandbox.backend": said} if has_fence else {}
    return {**origins, "run.runtime": said, "run.model": said, **fence}
