"""Runs the planner, which drafts stories for a goal."""

from pathlib import Path

from ringfence.config import Effective
from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InfrastructureFault,
    RingfenceError,
    Unparseable,
    UsageError,
)
from ringfence.frozen import frozen
from ringfence.job.request import Notify
from ringfence.journal import new_run_id, run_dir
from ringfence.loop.role import PLANNER, Briefing
from ringfence.loop.role.run_settings import effective_for
from ringfence.loop.rows import Spent, StepRow
from ringfence.loop.runs import AgentEnd, Runs
from ringfence.loop.settings import LoopSettings
from ringfence.loop.store import now_ms
from ringfence.loop.story import Plan, export, plan_from

_FILE = "stories.json"
_PERMANENT: dict[str, type[RingfenceError]] = {
    "authentication": AuthenticationFailed,
    "configuration": ConfigurationError,
}
"""States of its ended run for which a retry is pointless."""


@frozen
class Draft:
    """Stories that the planner wrote, and the step that made them."""

    plan: Plan
    file: Path
    """The stories as a file for `--prd`, beside the record of the planner's run."""
    step: StepRow
    """The planner's step, which belongs to no story, with the tokens and cost of all its tries."""


async def draft(
    goal: str, workspace: Path, effective: Effective, settings: LoopSettings, notify: Notify
) -> Draft:
    """Run the planner, and return the stories that it drafts. Changes that it makes to files are discarded.

    Raises:
        UsageError: The planner asks a question that only a person can answer.
        InfrastructureFault: Its run failed, or none of its answers is readable.
        AuthenticationFailed: Its credential is missing or wrong.
        ConfigurationError: Its stories are contradictory, or its model does not exist.
    """
    prompt = PLANNER.prompt(Briefing(goal=goal), template=settings.role("planner").prompt)
    again, spent, started_ms = "", Spent(), now_ms()
    for tried in range(1, settings.limits.faults + 1):
        configured = effective_for(effective, settings, "planner", attempt=1, spent=spent)
        end = await Runs(notify=notify).agent(
            f"role: planner\n\n{prompt.text}{again}", workspace, configured, run_id=new_run_id(),
            schema=PLANNER.schema, keeps_work=False,
        )  # fmt: skip
        spent = spent.and_more(end.tokens, end.cost_usd)
        notify(f"the planner took {end.tokens:,} tokens, ${end.cost_usd:.2f}")
        try:
            plan = _read(end)
        except Unparseable as exc:
            if tried == settings.limits.faults:
                raise InfrastructureFault(
                    f"the planner's answer cannot be used: {exc.why}; say the goal in other words, or write the stories "
                    "into a file for --prd"
                ) from exc
            notify(f"the planner's answer cannot be used: {exc.why}; it is asked again")
            again = f"\n\nYour last answer could not be used: {exc.why}\n"
        else:
            step = StepRow(
                story="", generation=1, name="plan", role="planner", attempt=1, model=configured.settings.run.model,
                run_id=end.run_id, outcome=end.state.value, result={}, tokens=spent.tokens, cost_usd=spent.cost_usd,
                tries=tried, started_ms=started_ms, ended_ms=now_ms(),
            )  # fmt: skip
            file = run_dir(end.run_id) / _FILE
            export(plan, file, {})
            return Draft(plan, file, step)
    raise AssertionError("`limits.faults` is at least 1")


def _read(end: AgentEnd) -> Plan:
    if end.state.value not in ("unverified", "succeeded"):
        kind = (
            ConfigurationError
            if end.is_misconfigured
            else _PERMANENT.get(end.state.value, InfrastructureFault)
        )
        raise kind(f"the planner's run {end.run_id} has ended ({end.state.value}): {end.reason}")
    answer = PLANNER.read(end.text, end.structured)
    if answer.blocked is not None:
        raise UsageError(f"the planner asks: {answer.blocked}; say so in the goal")
    document = answer.model_dump(mode="json", exclude={"blocked"})
    return plan_from(document, what="the planner's answer")
