"""Opens sources of work by their configuration, and stores claims with jobs."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from ringfence.fleet.config.model import AgentSettings, DirectoryTrigger, GithubTrigger
from ringfence.fleet.secret_placeholders import with_secrets
from ringfence.fleet.trigger.source.base import Claim, WorkItem, WorkSource
from ringfence.fleet.trigger.source.directory import DirectorySource


async def open_source(
    trigger: DirectoryTrigger | GithubTrigger, agent: AgentSettings, *, stack: AsyncExitStack, state: Path
) -> WorkSource:
    """Open the source of a trigger until the stack is closed.

    Raises:
        UsageError: The source does not exist.
        AuthenticationFailed, InfrastructureFault: Its credential is not available.
    """
    if isinstance(trigger, DirectoryTrigger):
        return DirectorySource(trigger.path)
    from ringfence.fleet.trigger.source.github import GitHubSource, GitHubSourceConfig

    async def token() -> str:
        async with AsyncExitStack() as leases:
            return await with_secrets(trigger.token, stack=leases, references=agent.secrets, state=state)

    config = GitHubSourceConfig(
        trigger.repository, label=trigger.label, claim_label=trigger.claimed_label, base_url=trigger.base_url
    )
    source = GitHubSource(config, token)
    stack.push_async_callback(source.aclose)
    return source


def claim_payload(claim: Claim) -> dict[str, str]:
    """Return the part of a claim that is stored, so that any worker can end it."""
    return {
        "id": claim.item.id,
        "title": claim.item.title,
        "created_at": claim.item.created_at.isoformat(),
        "token": claim.token,
        "handle": claim.handle,
    }


def claim_of(stored: Mapping[str, Any]) -> Claim:
    """Return the claim that `claim_payload` stored."""
    created = datetime.fromisoformat(str(stored["created_at"]))
    item = WorkItem(str(stored["id"]), str(stored["title"]), "", created)
    return Claim(item, str(stored["token"]), str(stored["handle"]))
