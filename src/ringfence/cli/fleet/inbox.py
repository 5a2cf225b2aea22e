"""The commands `ringfence inbox`: questions of a fleet's jobs that wait for a person."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ringfence.cli.options import JsonOption, ServerOption
from ringfence.cli.output import notify, print_answer
from ringfence.errors import PolicyRefused, UsageError
from ringfence.escape import visible

QuestionArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of a question.")]
_ANSWERS = ("allow", "deny")
_SCOPES = ("run", "agent")


def ls(
    *,
    all_: Annotated[bool, typer.Option("--all", help="List answered questions, too.")] = False,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Show only this agent.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, metavar="N", help="Show at most N.")
    ] = 50,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """List questions that wait for a person."""
    from ringfence.cli.render.console import print_list
    from ringfence.fleet.reader import open_reader

    found = open_reader(server=server).get("inbox", open=None if all_ else "true", agent=agent, limit=limit)
    rows = [
        (each["id"], each["agent"], _request_of(each), each["answer"] or _left(each["deadline"]))
        for each in found
    ]
    print_list({"questions": found}, ("question", "agent", "asks", "state"), rows, json=json)


def show(question: QuestionArgument, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Show one question."""
    from ringfence.fleet.reader import open_reader

    found = open_reader(server=server).get("inbox", question)
    print_answer(found, _lines(found), json=json)


def answer(
    question: QuestionArgument,
    decision: Annotated[str, typer.Argument(metavar="allow|deny")],
    *,
    for_: Annotated[
        str, typer.Option("--for", metavar="SCOPE", help="Grant it for this job (run), or for its agent.")
    ] = "run",
    reply: Annotated[str, typer.Option("--reply", metavar="TEXT", help="Message to the agent.")] = "",
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """Answer a question: allow or deny."""
    from ringfence.fleet.client import FleetClient
    from ringfence.fleet.reader import open_reader

    _check(decision, _ANSWERS, "the answer")
    _check(for_, _SCOPES, "--for")
    body = {"answer": decision, "scope": for_, "reply": reply}
    reader = open_reader(server=server)
    found = reader.post("inbox", question, "answer", body=body)
    if decision == "allow" and not isinstance(reader, FleetClient):
        notify("no daemon is running; the job continues after `ringfence fleet up`")
    outcome = "continues" if decision == "allow" else "ended as blocked"
    print_answer(found, [f"{found['id']}: {found['answer']}; job {found['job']} {outcome}"], json=json)


def grants(*, server: ServerOption = None, json: JsonOption = False) -> None:
    """List rules that agents were granted."""
    from ringfence.cli.render.console import print_list
    from ringfence.fleet.reader import open_reader

    found = open_reader(server=server).get("grants")
    rows = [
        (
            each["id"],
            each["agent"],
            f"may {_rule_of(each)}",
            each["granted_by"],
            each["granted_at"],
        )
        for each in found
    ]
    print_list({"grants": found}, ("grant", "agent", "rule", "by", "at"), rows, json=json)


def revoke(
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="Id of a grant.")],
    *,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """Take a granted rule away from an agent."""
    from ringfence.fleet.reader import open_reader

    found = open_reader(server=server).delete("grants", grant)
    lines = [
        f"agent {found['agent']} may no longer {_rule_of(found)}",
        "attempts that have begun keep the rule",
    ]
    print_answer(found, lines, json=json)


def _rule_of(grant: dict[str, Any]) -> str:
    """What a grant allows, for people."""
    from ringfence.job.question import read_rule

    try:
        return str(read_rule(grant["kind"], grant["rule"]))
    except PolicyRefused:  # as every attempt refuses it
        return f"do what no rule can grant: {grant['rule']!r}"


def _check(value: str, known: tuple[str, ...], what: str) -> None:
    if value not in known:
        raise UsageError(f"{what} is {value!r}; write {' or '.join(known)}")


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['id']}: agent {found['agent']} asks {found['asks']}",
        f"job {found['job']}, attempt {found['attempt']}, run {found['run_id']}",
        f"asked {found['created_at']}, to be answered by {found['deadline']}",
    ]
    if found["text"]:
        lines.append(f"the agent's own words: {visible(found['text'])}")
    if found["answer"] is not None:
        by = f" by {found['answered_by']}" if found["answered_by"] else ""
        lines.append(f"{found['answer']}{by} {found['answered_at']}, for {found['scope'] or 'this job'}")
    else:
        lines.append(f"answer it: ringfence inbox answer {found['id']} allow|deny")
    if found["reply"]:
        lines.append(f"reply: {visible(found['reply'])}")
    return lines


def _request_of(question: dict[str, Any]) -> str:
    """What a question asks for: its rule, or the agent's own words where there is no rule."""
    if question["kind"] == "question":
        return f"asks: {question['text']}"
    return f"asks {question['asks']}"


def _left(deadline: str | None) -> str:
    """Return the time until a question is closed, as text for people."""
    if deadline is None:
        return "open"
    left = datetime.fromisoformat(deadline) - datetime.now(UTC)
    minutes = max(0, int(left.total_seconds())) // 60
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"open, {days}d {hours}h left"
    return f"open, {hours}h {minutes}m left" if hours else f"open, {minutes}m left"
