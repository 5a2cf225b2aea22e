"""The commands `ringfence job`: the jobs of the fleet."""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import FollowOption, JsonOption, ServerOption
from ringfence.cli.output import RecordPrinter, notify, print_answer
from ringfence.cli.render.summary import how_to_apply
from ringfence.errors import InfrastructureFault, RecordError, UsageError
from ringfence.escape import visible

if TYPE_CHECKING:
    from ringfence.fleet.client import FleetClient

_POLL_S = 0.2
_WAIT_REPORT_DELAY_S = 3.0
"""A job waits this long before the reason is printed."""
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Id of a job, or the last characters of it.")]


def ls(
    *,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Show only this agent.")
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="List only jobs in this state; repeatable."),
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="JOB", help="List only jobs older than this one.")
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option("--trigger", metavar="KIND[/NAME]", help="List only jobs of this trigger."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="List jobs from this time on, or 2h ago on.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="List jobs before this time, or 2h ago.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="JOB", help="List jobs that retry, fork or follow it.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="List jobs with it in title or reason.")
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="List only jobs whose changes wait to be applied.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, metavar="N", help="Show at most N.")
    ] = 20,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """List jobs, the newest first.

    Times are those of this machine's clock.
    """
    from ringfence.cli.render.console import print_list
    from ringfence.fleet.reader import open_reader

    found = open_reader(server=server).get(
        "jobs",
        agent=agent,
        state=state,
        before=before,
        trigger=trigger,
        since=None if since is None else _parse_time("--since", since),
        until=None if until is None else _parse_time("--until", until),
        parent=parent,
        text=text,
        ready="true" if ready else None,
        limit=limit,
    )
    columns = ("job", "state", "agent", "time", "duration", "cost", "reason")
    print_list({"jobs": found}, columns, [*map(_row, found)], json=json)


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    """A job as a row of the table. While an attempt is running, the reason is that of the attempt before."""
    is_running = job["state"] in ("starting", "running")
    return (
        job["id"],
        job["state"],
        job["agent"],
        _clock(job["created_at"]),
        _duration(job),
        f"${job['cost_usd']:.2f}" if job["cost_usd"] else "",
        job["waits_for"] or (not is_running and job["reason"]) or job["title"],
    )


def _parse_time(option: str, text: str) -> str:
    """Convert a time or an age to the API's format; a time without a zone is in this machine's time zone."""
    from datetime import UTC, datetime, timedelta

    from ringfence.config.units import parse_duration

    with suppress(ValueError, OverflowError):  # the text may be an age
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    try:
        return (datetime.now(UTC) - timedelta(seconds=parse_duration(text))).isoformat()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option}: {text!r} is not a time; write 2026-01-31, 2026-01-31T09:30, or an age such as 2h or 7d"
        ) from None


def _clock(moment: str) -> str:
    from datetime import datetime

    return f"{datetime.fromisoformat(moment).astimezone():%Y-%m-%d %H:%M}"


def _duration(job: dict[str, Any]) -> str:
    """Return how long a job took, or has taken so far; empty if it has not started."""
    from datetime import UTC, datetime

    if job["started_at"] is None:
        return ""
    ended = job["ended_at"]
    end = datetime.now(UTC) if ended is None else datetime.fromisoformat(ended)
    seconds = max(0, round((end - datetime.fromisoformat(job["started_at"])).total_seconds()))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {seconds}s" if minutes else f"{seconds}s"


def show(job: JobArgument, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Show one job."""
    from ringfence.fleet.reader import open_reader
    from ringfence.journal import run_dir

    found = open_reader(server=server).get("jobs", job)
    if json:
        print_answer(found, (), json=True)
        return
    for key, value in found.items():
        if value not in (None, "", False, 0, 0.0) and not isinstance(value, list):
            typer.echo(visible(f"{key}: {'true' if value is True else value}"))
    for limit in found["limits"]:
        if limit["used"] is not None and limit["allowed"] is not None:
            typer.echo(f"limit {limit['name']}: {limit['used']:,.10g} of {limit['allowed']:,.10g}")
    for each in found["attempts"]:
        state = ": ".join(filter(None, (each["state"] or "running", each["reason"])))
        typer.echo(
            visible(f"attempt {each['number']}: {each['host']}, run {each['run_id']}, {state}", one_line=True)
        )
    is_here = server is None and bool(found["run_id"]) and run_dir(found["run_id"]).is_dir()
    if found["ended_at"] is not None and is_here and found["changes_state"] != "none":
        run = visible(found["run_id"][-8:], one_line=True)
        typer.echo(f"work: `ringfence diff {run}` shows it, `ringfence diff {run} --raw` is for `git apply`")
        if found["changes_state"] in ("pending", "unknown", "undone"):
            _report_copy(found)


def logs(
    job: JobArgument,
    *,
    follow: FollowOption = False,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """Print the events of a job.

    The record may be on another machine, if the fleet stores copies of records.
    """
    from ringfence.fleet.client import FleetClient
    from ringfence.fleet.queries.source import NOT_RUNNING
    from ringfence.fleet.reader import open_reader
    from ringfence.journal import read, run_dir

    reader, printer = open_reader(server=server), RecordPrinter(json=json)
    found = reader.get("jobs", job)
    client = reader if isinstance(reader, FleetClient) else None
    if follow and client is not None:
        _follow(client, found, printer)
        return
    if follow and found["ended_at"] is None:
        notify(f"--follow has no effect: {NOT_RUNNING}")
    if not found["run_id"]:
        _report_not_started(found)
    elif client is not None and (client.server is not None or not _was_here(found)):
        _print_events(client, found, printer, is_followed=False)
    elif _has_record(found):
        for record in read(run_dir(found["run_id"])):
            printer.show(record)


def _was_here(job: dict[str, Any]) -> bool:
    """Whether a job's last attempt was on this machine."""
    import socket

    from ringfence.journal import run_dir

    return job["host"] == socket.gethostname() or run_dir(job["run_id"]).is_dir()


def _print_events(
    client: "FleetClient", job: dict[str, Any], printer: "RecordPrinter", *, is_followed: bool
) -> bool:
    """Print the events of a job's last attempt as the API sends them; return whether the last one is the seal."""
    import json

    from ringfence.events import JournalSealed
    from ringfence.journal.record import from_json

    last = None
    query = {"attempt": job["attempt"], "follow": "true" if is_followed else None}
    for line in client.lines("jobs", job["id"], "events", **query):
        record = from_json(json.loads(line))
        printer.show(record)
        last = record.event
    return isinstance(last, JournalSealed)


class _WaitReporter:
    """Prints why a job waits, each reason once, after the job has waited for some seconds."""

    def __init__(self) -> None:
        self._last_reason: str | None = None
        self._report_from = time.monotonic() + _WAIT_REPORT_DELAY_S

    def report(self, job: dict[str, Any]) -> None:
        if job["waits_for"] not in (None, self._last_reason) and time.monotonic() > self._report_from:
            self._last_reason = job["waits_for"]
            notify(f"job {job['id']} waits: {visible(job['waits_for'], one_line=True)}")


def _follow(client: "FleetClient", found: dict[str, Any], printer: "RecordPrinter") -> None:
    """Print a job's attempts until the job ends."""
    shown, is_sealed, waits = None, False, _WaitReporter()
    while True:
        run_id, is_over = found["run_id"], found["ended_at"] is not None
        is_remote = client.server is not None
        if run_id not in (None, shown) and (is_over or is_remote or _has_journal(run_id)):
            if not is_remote and not _has_record(found):
                return
            if shown is not None:
                notify(
                    f"job {found['id']}: the attempt ended, but not the job; attempt {found['attempt']} follows"
                )
            shown = run_id
            is_sealed = (
                _print_events(client, found, printer, is_followed=True)
                if is_remote
                else _print_record(run_id, printer)
            )
        elif is_over:
            if run_id is None:
                _report_not_started(found)
            return
        else:
            waits.report(found)
            time.sleep(_POLL_S)
        try:
            found = client.get("jobs", found["id"])
        except UsageError:
            if is_sealed:  # the daemon has stopped, and the whole record is printed
                return
            raise


def _has_journal(run_id: str) -> bool:
    """Whether the run's journal has content; the run's directory is created shortly before."""
    from ringfence.journal import run_dir
    from ringfence.journal.layout import journal_path

    try:
        return journal_path(run_dir(run_id)).stat().st_size > 0
    except OSError:
        return False


def _print_record(run_id: str, printer: "RecordPrinter") -> bool:
    """Print a record while it is written; return whether it was sealed rather than interrupted."""
    import anyio

    from ringfence.events import JournalSealed
    from ringfence.journal import follow, run_dir

    last = None

    async def print_all() -> None:
        nonlocal last
        async for record in follow(run_dir(run_id)):
            printer.show(record)
            last = record.event

    anyio.run(print_all)
    return isinstance(last, JournalSealed)


def _report_not_started(job: dict[str, Any]) -> None:
    typer.echo(f"job {job['id']} has not started: {job['waits_for'] or job['state']}", err=True)


def _has_record(job: dict[str, Any]) -> bool:
    from ringfence.journal import run_dir

    if run_dir(job["run_id"]).is_dir():
        return True
    state = visible(": ".join(filter(None, (job["state"], job["reason"]))), one_line=True)
    typer.echo(
        f"job {job['id']} has no record on this machine ({state}); if a worker on another machine ran it, "
        f"`ringfence runs logs {job['run_id']}` prints it there",
        err=True,
    )
    return False


def cancel(job: JobArgument, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Cancel a job, and keep the work so far."""
    from ringfence.fleet.client import open_client

    found = open_client(server).post("jobs", job, "cancel")
    state = found["state"] if found["state"] == "cancelled" else "is being cancelled"
    print_answer(found, [f"{found['id']}: {state}"], json=json)


def retry(
    job: JobArgument,
    *,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="New task; default: the same.")
    ] = None,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """Run a job again as a new job."""
    _repeat(job, "retry", prompt, server, json=json)


def fork(
    job: JobArgument,
    *,
    prompt: Annotated[str, typer.Option("--prompt", "-p", metavar="TEXT", help="Task that follows.")],
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """Start a new job from where a job ended."""
    _repeat(job, "fork", prompt, server, json=json)


def _repeat(job: str, action: str, prompt: str | None, server: str | None, *, json: bool) -> None:
    from ringfence.fleet.client import open_client

    created = open_client(server).post("jobs", job, action, body={} if prompt is None else {"prompt": prompt})
    print_answer(created, [created["job"]["id"]], json=json)


def rm(job: JobArgument, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Remove a job that has ended; its records stay."""
    from ringfence.fleet.client import open_client

    client = open_client(server)
    removed = client.get("jobs", job)["id"]
    client.delete("jobs", removed)
    print_answer({"id": removed}, (), json=json)


def wait_for(client: "FleetClient", job_id: str, *, json: bool) -> int:
    """Wait until a job ends, print its end and return its exit code."""
    from ringfence.job.state import JobState, exit_code

    waits = _WaitReporter()
    while True:
        try:
            job: dict[str, Any] = client.get("jobs", job_id)
        except (UsageError, InfrastructureFault) as exc:
            raise InfrastructureFault(
                f"the daemon stopped while this command waited for job {job_id} ({exc}); the job is kept: run "
                f"`ringfence fleet up -d` to continue it, then `ringfence job show {job_id}`"
            ) from exc
        if job["ended_at"] is not None:
            break
        waits.report(job)
        time.sleep(_POLL_S)
    print_answer(job, [f"{job['id']}  {job['state']}  {job['reason']}"], json=json)
    if not json:
        _report_copy(job)
    recorded = _recorded_exit_code(job)
    return exit_code(JobState(job["state"]), require_verified=False) if recorded is None else recorded


def _recorded_exit_code(job: dict[str, Any]) -> int | None:
    """Return the exit code of a job's last run, by that run's settings; None if its record is not on this machine."""
    from ringfence.events import JobEnded
    from ringfence.journal import read, run_dir

    if not job["run_id"]:
        return None
    try:
        ends = [record.event for record in read(run_dir(job["run_id"])) if isinstance(record.event, JobEnded)]
    except RecordError:
        return None
    return ends[-1].exit_code if ends and ends[-1].state == job["state"] else None


def _report_copy(job: dict[str, Any]) -> None:
    """If a job changed files on a private copy, print on stderr how to apply the changes."""
    from ringfence.events import WorkExported
    from ringfence.journal import read, run_dir

    if not job["run_id"]:
        return
    path = run_dir(job["run_id"])
    try:
        work = [record.event for record in read(path) if isinstance(record.event, WorkExported)]
    except RecordError:  # the record is on another machine, or the job changed nothing
        return
    hint = how_to_apply(work[-1] if work else None, path)
    if hint is not None:
        notify(hint)
