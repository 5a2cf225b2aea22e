"""`ringfence job`: the jobs of the fleet."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import FollowOption, JsonOption
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
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, metavar="N", help="Show at most N.")
    ] = 20,
    json: JsonOption = False,
) -> None:
    """List jobs, the newest first."""
    from ringfence.cli.render.console import print_list
    from ringfence.fleet.queries.local import open_reader

    found = open_reader().get("jobs", agent=agent, state=state, before=before, limit=limit)
    rows = [(job["id"], job["state"], job["agent"], job["waits_for"] or job["reason"] or "") for job in found]
    print_list({"jobs": found}, ("job", "state", "agent", "reason"), rows, json=json)


def show(job: JobArgument, *, json: JsonOption = False) -> None:
    """Show one job."""
    from ringfence.fleet.queries.local import open_reader
    from ringfence.journal import run_dir

    found = open_reader().get("jobs", job)
    if json:
        print_answer(found, (), json=True)
        return
    for key, value in found.items():
        if value not in (None, "", False, 0, 0.0):
            typer.echo(visible(f"{key}: {'true' if value is True else value}"))
    if found["run_id"] and found["ended_at"] is not None and run_dir(found["run_id"]).is_dir():
        run = visible(found["run_id"][-8:], one_line=True)
        typer.echo(f"work: `ringfence diff {run}` shows it, `ringfence diff {run} --raw` is for `git apply`")
        _report_copy(found)


def logs(
    job: JobArgument,
    *,
    follow: FollowOption = False,
    json: JsonOption = False,
) -> None:
    """Print the events of a job."""
    from ringfence.fleet.client import FleetClient
    from ringfence.fleet.queries.local import open_reader
    from ringfence.fleet.queries.source import NOT_RUNNING
    from ringfence.journal import read, run_dir

    reader, printer = open_reader(), RecordPrinter(json=json)
    found = reader.get("jobs", job)
    if follow and isinstance(reader, FleetClient):
        _follow(reader, found, printer)
        return
    if follow and found["ended_at"] is None:
        notify(f"--follow has no effect: {NOT_RUNNING}")
    if not found["run_id"]:
        _report_not_started(found)
    elif _has_record(found):
        for record in read(run_dir(found["run_id"])):
            printer.show(record)


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
        if run_id not in (None, shown) and (is_over or _has_journal(run_id)):
            if not _has_record(found):
                return
            if shown is not None:
                notify(
                    f"job {found['id']}: the attempt ended, but not the job; attempt {found['attempt']} follows"
                )
            shown, is_sealed = run_id, _print_record(run_id, printer)
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


def cancel(job: JobArgument, *, json: JsonOption = False) -> None:
    """Cancel a job, and keep the work so far."""
    from ringfence.fleet.client import FleetClient

    found = FleetClient().post("jobs", job, "cancel")
    state = found["state"] if found["state"] == "cancelled" else "is being cancelled"
    print_answer(found, [f"{found['id']}: {state}"], json=json)


def retry(
    job: JobArgument,
    *,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="New task; default: the same.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a job again as a new job."""
    _repeat(job, "retry", prompt, json=json)


def fork(
    job: JobArgument,
    *,
    prompt: Annotated[str, typer.Option("--prompt", "-p", metavar="TEXT", help="Task that follows.")],
    json: JsonOption = False,
) -> None:
    """Start a new job from where a job ended."""
    _repeat(job, "fork", prompt, json=json)


def _repeat(job: str, action: str, prompt: str | None, *, json: bool) -> None:
    from ringfence.fleet.client import FleetClient

    created = FleetClient().post("jobs", job, action, body={} if prompt is None else {"prompt": prompt})
    print_answer(created, [created["job"]["id"]], json=json)


def rm(job: JobArgument, *, json: JsonOption = False) -> None:
    """Remove a job that has ended; its records stay."""
    from ringfence.fleet.client import FleetClient

    client = FleetClient()
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
    """The exit code of a job's last run, by that run's settings; None if its record is not on this machine."""
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
    except RecordError:  # on another machine, or it changed nothing
        return
    hint = how_to_apply(work[-1] if work else None, path)
    if hint is not None:
        notify(hint)
