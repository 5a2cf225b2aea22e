"""The commands `ringfence inbox`: what waits for a person.

These are questions of a fleet's jobs, and requests of programs on this machine to apply the changes of a run, which need
no fleet.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption, ServerOption
from ringfence.cli.output import notify, print_answer
from ringfence.cli.render.summary import warnings
from ringfence.errors import NotFound, PolicyRefused, UsageError
from ringfence.escape import visible

if TYPE_CHECKING:
    from ringfence.job.apply_request import ApplyRequest

QuestionArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a question, or of a run whose changes wait.")
]
_ANSWERS = ("allow", "deny")
_SCOPES = ("run", "agent")
_SHORT_CHARS = 8
_MAX_FILES = 50


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
    from ringfence.job.apply_request import apply_requests

    requests = [] if server is not None or agent is not None else apply_requests()[:limit]
    found = _questions(server, open=None if all_ else "true", agent=agent, limit=limit)
    if not (found or requests) and not json:
        notify("nothing waits for a person")
        return
    rows = [
        (each["id"], each["agent"], _request_of(each), each["answer"] or _left(each["deadline"]))
        for each in found
    ]
    rows += [(each.run[-8:], each.by, _change_of(each), "open") for each in requests]
    document = {"questions": found, "changes": [_document(each) for each in requests]}
    print_list(document, ("id", "from", "asks", "state"), rows, json=json)


def _questions(server: str | None, **query: Any) -> list[dict[str, Any]]:
    """The questions of the fleet; none if there is no fleet on this machine."""
    from ringfence.fleet.client import NoDaemon
    from ringfence.fleet.reader import open_reader

    try:
        found: list[dict[str, Any]] = open_reader(server=server).get("inbox", **query)
    except NoDaemon:
        if server is not None:
            raise
        return []
    return found


def show(question: QuestionArgument, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Show one question, or one request to apply changes."""
    from ringfence.fleet.reader import open_reader

    if server is None and (request := _find_request(question)) is not None:
        short = request.run[-8:]
        files, suspects = _changed_files(request)
        lines = [
            f"{request.by} {_change_of(request)}, since {request.at}",
            *(f"  {line}" for line in files),
            *warnings(suspects, request.run),
            f"look at them: ringfence diff {short}",
            f"answer it: ringfence inbox answer {short} allow|deny",
        ]
        print_answer({**_document(request), "runs_on_your_machine": suspects}, lines, json=json)
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

    _check(decision, _ANSWERS, "the answer")
    if server is None and (request := _find_request(question)) is not None:
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
    from ringfence.sandbox.workspace.record import load_record, runs_on_your_machine

    run = run_dir(request.run)
    if decision == "allow":
        record = load_record(run)
        restored = anyio.run(apply_changes, run)
        for line in warnings(runs_on_your_machine(record, restored.diff), record.run):
            notify(line)
        done = f"applied {len(restored.diff.files)} changed files to {request.workspace}"
    else:
        anyio.run(partial(reject_changes, run, by=getuser()))
        done = "rejected"
    print_answer({**_document(request), "answer": decision}, [f"{request.run[-8:]}: {done}"], json=json)


def _find_request(name: str) -> "ApplyRequest | None":
    """Find the request to apply the changes of a run; None if the name is none of a run whose changes were decided on.

    Raises:
        NotFound: The changes of this run were applied or rejected.
    """
    from ringfence.job.apply_request import find_apply_request
    from ringfence.job.changes import is_decided, rejected_marker
    from ringfence.journal import matching_runs

    request = find_apply_request(name)
    if request is not None:
        return request
    decided = [run for run in matching_runs(name) if is_decided(run)] if len(name) >= _SHORT_CHARS else []
    if not decided:
        return None
    run, short = decided[0], decided[0].name[-_SHORT_CHARS:]
    if rejected_marker(run).exists():
        raise NotFound(
            f"the changes of run {short!r} were rejected; `ringfence apply {short}` applies them nevertheless"
        )
    raise NotFound(f"the changes of run {short!r} were applied; `ringfence undo {short}` takes them back")


def _changed_files(request: "ApplyRequest") -> tuple[list[str], list[str]]:
    """The first changed files of a run with their kind of change, and those that run on this machine by themselves."""
    import anyio

    from ringfence.config.paths import state_dir
    from ringfence.journal import run_dir
    from ringfence.sandbox.workspace.record import diff_run, load_record, open_store, runs_on_your_machine

    record = load_record(run_dir(request.run))
    changes = anyio.run(diff_run, record, open_store(record, state_dir()))
    lines = [
        f"{change.kind:<10} {visible(change.path, one_line=True)}" for change in changes.files[:_MAX_FILES]
    ]
    more = len(changes.files) - len(lines)
    lines += [f"and {more} more"] if more > 0 else []
    if record.refs:
        lines.append("it made commits, too: `ringfence runs show` names them")
    return lines, list(runs_on_your_machine(record, changes))


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
