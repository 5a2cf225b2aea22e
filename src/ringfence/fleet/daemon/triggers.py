"""Runs the triggers that create jobs from file changes and from items in work sources.

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
_SUBMIT_RETRY_S = 1.0
_FETCH_LIMIT = 20


class Triggers:
    """The triggers of a fleet that watch files or poll work sources.

    Args:
        database: Stores claims that have not become jobs yet.
        submit: Submits a job.
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
        """Start, stop and restart triggers to match a fleet's configuration. Unchanged triggers keep running."""
        configured = {
            f"{agent.name}/{name}": (agent, name, trigger)
            for agent in fleet.agents.values()
            for name, trigger in agent.settings.triggers.items()
            if isinstance(trigger, FilesTrigger | DirectoryTrigger | GithubTrigger)
        }
        for key in set(self._running) - set(configured):
            self._running.pop(key)[1].cancel()
        for key, (agent, name, trigger) in configured.items():
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
                began, problem = anyio.current_time(), "it ended"
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
            request = JobRequest(
                agent,
                "files",
                name=name,
                prompt=trigger.prompt,
                dedupe_key=f"files/{agent.name}/{name}/{secrets.token_hex(8)}",
                priority=trigger.priority,
                payload=batch.as_payload(),
                overlap=trigger.overlap,
            )
            await self._submit_until_stored(request)

    async def _submit_until_stored(self, request: JobRequest) -> None:
        """Submit the job of a batch of file changes, and retry until stored, since changes are reported only once.

        Its key makes it one job despite the retries.
        """
        reported = ""
        while True:
            try:
                await self._submit(request)
            except InfrastructureFault as exc:
                if str(exc) != reported:
                    reported = str(exc)
                    line = f"trigger {request.agent.name}/{request.name}: {reported}; retried every second"
                    self._log(line, event="trigger.failed", agent=request.agent.name, trigger=request.name)
                await anyio.sleep(_SUBMIT_RETRY_S)
            else:
                return

    async def _poll(self, agent: Agent, name: str, trigger: DirectoryTrigger | GithubTrigger) -> None:
        async with AsyncExitStack() as stack:
            source = await open_source(trigger, agent.settings, stack=stack, state=self._state)
            report = _ItemLog(self._log, agent.name, name)
            pending_claims = await self._pending_claims.of(agent.name, name)
            while True:
                if await self._is_wanted(agent.name):
                    fetched = await source.fetch(_FETCH_LIMIT)
                    for bad in fetched.unusable:
                        report(bad.id, f"cannot become a job: {bad.reason}", event="work.unusable")
                    known = {pending_claim.item for pending_claim in pending_claims}
                    for item in fetched.items:
                        if item.id not in known:
                            pending_claims.append(
                                PendingClaim(agent.name, name, item.id, secrets.token_hex(16))
                            )
                            await self._pending_claims.add(pending_claims[-1])
                refused = []
                for pending_claim in pending_claims:
                    try:
                        await self._claim(agent, trigger, source, pending_claim)
                    except UsageError as exc:
                        report(pending_claim.item, f"is refused: {exc}", event="work.refused")
                        refused.append(pending_claim)
                pending_claims = refused
                await anyio.sleep(trigger.every)

    async def _claim(
        self,
        agent: Agent,
        trigger: DirectoryTrigger | GithubTrigger,
        source: WorkSource,
        pending_claim: PendingClaim,
    ) -> None:
        """Claim an item and submit its job. After a crash in between, it is claimed again by the same stored token.

        Raises:
            UsageError: The source refuses the claim. It may have stored a part of it, so the same token is used again.
        """
        claim = await source.claim(pending_claim.item, pending_claim.token)
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


class _ItemLog:
    """Logs problems of a source's items, each when it changes."""

    def __init__(self, log: Log, agent: str, trigger: str) -> None:
        self._log = log
        self._agent = agent
        self._trigger = trigger
        self._reported: dict[str, str] = {}

    def __call__(self, item: str, problem: str, *, event: str) -> None:
        if self._reported.get(item) != problem:
            self._reported[item] = problem
            line = f"trigger {self._agent}/{self._trigger}: {item!r} {problem}"
            self._log(line, event=event, agent=self._agent, trigger=self._trigger)


_PROMPT = "{{ payload.title }}\n\n{{ payload.body }}"
