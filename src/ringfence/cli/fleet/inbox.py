"""The commands `ringfence inbox`: what waits for a person.

These are questions of a fleet's jobs, and requests of programs on this machine to apply the changes of a run, which need
no fleet.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption, ServerOption
from ringfence.cli.output import notify, print_answer
from ringfence.errors import PolicyRefused, UsageError
from ringfence.escape import visible

if TYPE_CHECKING:
    from ringfence.job.apply_request import ApplyRequest

QuestionArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a question, or of a run whose changes wait.")
]
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
    """List what waits for a person: questions, and changes.

    Changes are those of runs on this machine that a program, such as an MCP client, requests to apply.
    """
    from ringfence.cli.render.console import print_list
    from ringfence.fleet.client import NoDaemon
    from ringfence.fleet.reader import open_reader
    from ringfence.job.apply_request import apply_requests

    requests = [] if server is not None or agent is not None else apply_requests()[:limit]
    found: list[dict[str, Any]] = []
    try:
        found = open_reader(server=server).get(
            "inbox", open=None if all_ else "true", agent=agent, limit=limit
        )
    except NoDaemon:
        if not requests:
            raise
    rows = [
        (each["id"], each["agent"], _request_of(each), each["answer"] or _left(each["deadline"]))
        for each in found
    ]
    rows += [(each.run[-8:], each.by, _change_of(each), "open") for each in requests]
    document = {"questions": found, "changes": [_document(each) for each in requests]}
    print_list(document, ("id", "from", "asks", "state"), rows, json=json)


def show(question: QuestionArgument, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Show one question, or one request to apply changes."""
    from ringfence.fleet.reader import open_reader
    from ringfence.job.apply_request import find_apply_request

    if server is None and (request := find_apply_request(question)) is not None:
        short = request.run[-8:]
        lines = [
            f"{request.by} {_change_of(request)}, since {request.at}",
            f"look at them: ringfence diff {short}",
            f"answer it: ringfence inbox answer {short} allow|deny",
        ]
        print_answer(_document(request), lines, json=json)
        return
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
    """Answer a question: allow or deny.

    For the changes of a run, `allow` applies them to the workspace, and `deny` rejects them.
    """
    from ringfence.fleet.client import FleetClient
    from ringfence.fleet.reader import open_reader
    from ringfence.job.apply_request import find_apply_request

    _check(decision, _ANSWERS, "the answer")
    if server is None and (request := find_apply_request(question)) is not None:
        _decide_on(request, decision, json=json)
        return
    _check(for_, _SCOPES, "--for")
    body = {"answer": decision, "scope": for_, "reply": reply}
    reader = open_reader(server=server)
    found = reader.post("inbox", question, "answer", body=body)
    if decision == "allow" and not isinstance(reader, FleetClient):
        notify("no daemon is running; the job continues after `ringfence fleet up`")
    outcome = "continues" if decision == "allow" else "ended as blocked"
    print_answer(found, [f"{found['id']}: {found['answer']}; job {found['job']} {outcome}"], json=json)


def _decide_on(request: "ApplyRequest", decision: str, *, json: bool) -> None:
    """Apply or reject the changes of a run."""
    from functools import partial
    from getpass import getuser

    import anyio

    from ringfence.job.changes import apply_changes, reject_changes
    from ringfence.journal import run_dir

    run = run_dir(request.run)
    if decision == "allow":
        restored = anyio.run(apply_changes, run)
        done = f"applied {len(restored.diff.files)} changed files to {request.workspace}"
    else:
        anyio.run(partial(reject_changes, run, by=getuser()))
        done = "rejected"
    print_answer({**_document(request), "answer": decision}, [f"{request.run[-8:]}: {done}"], json=json)


def _change_of(request: "ApplyRequest") -> str:
    """What a request asks for."""
    return f"asks to apply the changes of run {request.run[-8:]} to {request.workspace}"


def _document(request: "ApplyRequest") -> dict[str, Any]:
    """A request, for programs."""
    return {"run": request.run, "by": request.by, "at": request.at, "workspace": request.workspace}


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
