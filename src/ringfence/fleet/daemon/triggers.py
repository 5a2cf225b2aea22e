"""Runs the triggers that make jobs of file changes and of items in work sources.

Each trigger is independent: one that fails is logged and retried, and delays no other.
"""

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.fleet.config.definition import Agent, Fleet
from ringfence.fleet.config.model import DirectoryTrigger, FilesTrigger, GithubTrigger
from ringfence.fleet.log import Log
from ringfence.fleet.store.claims import PendingClaim, PendingClaims
from ringfence.fleet.store.database import Database
from ringfence.fleet.submission import JobRequest, Submission
from ringfence.fleet.trigger.files import FileWatch, changes
from ringfence.fleet.trigger.source.base import WorkSource
from ringfence.fleet.trigger.source.registry import claim_payload, open_source

Submit = Callable[[JobRequest], Awaitable[Submission]]
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0
_FETCH_LIMIT = 20


class Triggers:
    """The triggers of a fleet that watch files or poll work sources.

    Args:
        database: Stores claims that have not become jobs yet.
        submit: Enters a job.
        is_wanted: Whether an agent takes work now.
        log: Logs failures.
        state: The state directory.
    """

    def __init__(
        self,
        database: Database,
        *,
        submit: Submit,
        is_wanted: Callable[[str], Awaitable[bool]],
        log: Log,
        state: Path,
    ) -> None:
        self._pending_claims = PendingClaims(database)
        self._submit = submit
        self._is_wanted = is_wanted
        self._log = log
        self._state = state
        self._running: dict[str, tuple[object, anyio.CancelScope]] = {}
        self._tasks: TaskGroup | None = None

    async def run(self, fleet: Fleet) -> None:
        """Run the triggers until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self.take(fleet)
            await anyio.sleep_forever()

    def take(self, fleet: Fleet) -> None:
        """Replace the triggers by those of a fleet. Unchanged triggers keep running."""
        wanted = {
            f"{agent.name}/{name}": (agent, name, trigger)
            for agent in fleet.agents.values()
            for name, trigger in agent.settings.triggers.items()
            if isinstance(trigger, FilesTrigger | DirectoryTrigger | GithubTrigger)
        }
        for key in set(self._running) - set(wanted):
            self._running.pop(key)[1].cancel()
        for key, (agent, name, trigger) in wanted.items():
            known = self._running.get(key)
            if known is not None and known[0] == agent.settings:
                continue
            if known is not None:
                known[1].cancel()
            scope = anyio.CancelScope()
            self._running[key] = (agent.settings, scope)
            assert self._tasks is not None
            self._tasks.start_soon(self._keep_running, agent, name, trigger, scope)

    async def _keep_running(
        self,
        agent: Agent,
        name: str,
        trigger: FilesTrigger | DirectoryTrigger | GithubTrigger,
        scope: anyio.CancelScope,
    ) -> None:
        """Run one trigger, and restart it after each failure with a growing pause."""
        pause_s = _FIRST_PAUSE_S
        with scope:
            while True:
                began = anyio.current_time()
                try:
                    if isinstance(trigger, FilesTrigger):
                        await self._watch(agent, name, trigger)
                    else:
                        await self._poll(agent, name, trigger)
                except RingfenceError as exc:
                    problem = str(exc)
                except Exception as exc:  # noqa: BLE001 -- one trigger's fault is logged and stops no other
                    problem = f"internal error: {exc!r}"
                if anyio.current_time() - began > _LONGEST_PAUSE_S:
                    pause_s = _FIRST_PAUSE_S
                line = f"trigger {agent.name}/{name}: {problem}; retried in {pause_s:g} s"
                self._log(line, event="trigger.failed", agent=agent.name, trigger=name, pause_s=pause_s)
                await anyio.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    async def _watch(self, agent: Agent, name: str, trigger: FilesTrigger) -> None:
        assert agent.settings.workspace is not None
        watch = FileWatch(agent.settings.workspace, trigger.paths, settle_s=trigger.settle)
        async for batch in changes(watch):
            wanted = JobRequest(
                agent,
                "files",
                name=name,
                prompt=trigger.prompt,
                dedupe_key=f"files/{agent.name}/{name}/{secrets.token_hex(8)}",
                priority=trigger.priority,
                payload=batch.as_payload(),
                overlap=trigger.overlap,
            )
            await self._submit_until_done(wanted)

    async def _submit_until_done(self, wanted: JobRequest) -> None:
        """Enter a job of file changes, which are reported only once. Its key makes it one job despite retries."""
        reported = ""
        while True:
            try:
                await self._submit(wanted)
            except InfrastructureFault as exc:
                if str(exc) != reported:
                    reported = str(exc)
                    line = f"trigger {wanted.agent.name}/{wanted.name}: {reported}; retried every second"
                    self._log(line, event="trigger.failed", agent=wanted.agent.name, trigger=wanted.name)
                await anyio.sleep(_FIRST_PAUSE_S)
            else:
                return

    async def _poll(self, agent: Agent, name: str, trigger: DirectoryTrigger | GithubTrigger) -> None:
        async with AsyncExitStack() as stack:
            source = await open_source(trigger, agent.settings, stack=stack, state=self._state)
            reported: set[str] = set()
            pending_claims = await self._pending_claims.of(agent.name, name)
            while True:
                if await self._is_wanted(agent.name):
                    fetched = await source.fetch(_FETCH_LIMIT)
                    for bad in fetched.unusable:
                        if bad.id not in reported:
                            line = (
                                f"trigger {agent.name}/{name}: {bad.id!r} cannot become a job: {bad.reason}"
                            )
                            self._log(line, event="work.unusable", agent=agent.name, trigger=name)
                            reported.add(bad.id)
                    known = {pending_claim.item for pending_claim in pending_claims}
                    for item in fetched.items:
                        if item.id not in known:
                            pending_claims.append(
                                PendingClaim(agent.name, name, item.id, secrets.token_hex(16))
                            )
                            await self._pending_claims.add(pending_claims[-1])
                refused = [
                    await self._claim(agent, trigger, source, pending_claim)
                    for pending_claim in pending_claims
                ]
                if why := next(filter(None, refused), None):
                    raise why
                pending_claims.clear()
                await anyio.sleep(trigger.every)

    async def _claim(
        self,
        agent: Agent,
        trigger: DirectoryTrigger | GithubTrigger,
        source: WorkSource,
        pending_claim: PendingClaim,
    ) -> UsageError | None:
        """Claim an item and enter its job. After a crash in between, it is claimed again by the same stored token.

        Returns:
            Why the source refuses the claim. That may concern this item alone, so the others are claimed first.
        """
        try:
            claim = await source.claim(pending_claim.item, pending_claim.token)
        except UsageError as exc:
            return exc
        if claim is not None:
            await self._submit(
                JobRequest(
                    agent,
                    "source",
                    name=pending_claim.trigger,
                    prompt=trigger.prompt or _PROMPT,
                    priority=trigger.priority,
                    payload={**claim.item.as_payload(), "claim": claim_payload(claim)},
                    dedupe_key=pending_claim.key,
                )
            )
        await self._pending_claims.drop(pending_claim)
        return None


_PROMPT = "{{ payload.title }}\n\n{{ payload.body }}"
