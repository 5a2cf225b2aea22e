"""The commands `ringfence fleet`: a fleet of agents, and the daemon that runs it."""

import os
import select
import signal
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.fleet.agents import report_former_agents
from ringfence.cli.fleet.herdctl import report_note_count, report_notes
from ringfence.cli.fleet.status import status_lines
from ringfence.cli.options import JsonOption, LogFormatOption, ServerOption
from ringfence.cli.output import counted, notify, print_answer
from ringfence.cli.settings import check_file
from ringfence.errors import ExitCode, InfrastructureFault, RingfenceError, UsageError
from ringfence.escape import safe_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ringfence.fleet.config.definition import Fleet
    from ringfence.fleet.config.model import LogFormat
    from ringfence.fleet.daemon.daemon import Daemon

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The fleet's file or a herdctl.yaml; default: the nearest ringfence.yaml.",
    ),
]
_MAX_WARNINGS = 5
"""Warnings that `fleet up` prints; `fleet validate` prints all."""


def up(
    *,
    file: FileOption = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Run in the background.")] = False,
    standby: Annotated[
        bool,
        typer.Option("--standby", help="Wait while another daemon runs the fleet, then take over."),
    ] = False,
    json: JsonOption = False,
    log_format: LogFormatOption = None,
) -> None:
    """Start the fleet's daemon."""
    import anyio

    path = fleet_file(file)
    if detach and standby:
        raise UsageError("--standby stays in the foreground, for a service manager; leave out --detach")
    if detach:
        from ringfence.cli.fleet.background_daemon import start_detached
        from ringfence.config.paths import state_dir
        from ringfence.fleet.config.loader import load_trusted
        from ringfence.fleet.daemon.log_file import log_file

        # Errors in the fleet are reported by this process, with their own exit code.
        fleet = load_trusted(path, environ=os.environ)
        missing = anyio.run(_check_machine, fleet)
        log = log_file(state_dir())
        form = ["--log-format", log_format] if log_format is not None else []
        pid = start_detached(["fleet", "up", "--file", str(path), *form], log, path)

        lines = [f"fleet is up, process {pid}; its log: {log}"]
        print_answer({"pid": pid, "log": str(log)}, lines, json=json)
        report_note_count(fleet.notes)
        for warning in _first_warnings(fleet, missing):
            notify(warning)
        return
    anyio.run(_up, path, json, log_format, standby)


async def _up(path: Path, is_json: bool, log_format: "LogFormat | None", is_standby: bool) -> None:
    import anyio

    from ringfence.cli.fleet.log import Log
    from ringfence.config.old_names import rename_database
    from ringfence.config.paths import state_dir
    from ringfence.fleet.daemon.daemon import Daemon
    from ringfence.fleet.daemon.run import run_daemon
    from ringfence.fleet.daemon.systemd_notify import Notifier
    from ringfence.fleet.state_directory import held

    log = Log(log_format or "text")
    with held(state_dir()) as other:
        notice = None if other else rename_database(state_dir() / "fleet")
    daemon = Daemon(path, state_dir(), os.environ, log, notifier=Notifier(os.environ), log_format=log_format)
    log.form = daemon.effective_log_format
    if notice is not None:
        log(notice, event="database.renamed")
    missing = await _check_machine(daemon.fleet)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_handle_signals, daemon)
        await run_daemon(
            daemon,
            on_ready=lambda: _report_ready(daemon, missing, is_json=is_json),
            is_standby=is_standby,
        )
        tasks.cancel_scope.cancel()


async def _handle_signals(daemon: "Daemon") -> None:
    import anyio

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            if number != signal.SIGHUP:
                daemon.stop()
                continue
            with suppress(RingfenceError):  # the daemon has logged it
                await daemon.reload()


async def _check_machine(fleet: "Fleet") -> list[str]:
    """Check that the fleet can run on this machine; return the programs that some agents lack.

    Raises:
        PolicyRefused: A limit in the configuration cannot be enforced.
    """
    from ringfence.fleet.preflight import check_limits, missing_programs

    await check_limits(fleet)
    return await missing_programs(fleet)


def _report_ready(daemon: "Daemon", missing: "Sequence[str]", *, is_json: bool) -> None:
    agents = counted(len(daemon.fleet.agents), "agent")
    print_answer({"pid": os.getpid(), "log": None}, (), json=is_json)
    line = f"fleet {daemon.fleet.settings.name!r} is up: {agents}; `ringfence fleet status` shows it"
    daemon.log(line, event="fleet.ready", level="info", fleet=daemon.fleet.settings.name)
    report_note_count(daemon.fleet.notes)
    for warning in _first_warnings(daemon.fleet, missing):
        daemon.log(warning, event="fleet.warning")


def _first_warnings(fleet: "Fleet", missing: "Sequence[str]") -> "Iterator[str]":
    """Yield the first warnings about the fleet, and the command that prints the rest."""
    from ringfence.fleet.config.warnings import find_warnings

    found = chain(missing, find_warnings(fleet, os.environ))
    yield from islice(found, _MAX_WARNINGS)
    if more := sum(1 for _ in found):
        yield f"{more} more warnings; `ringfence fleet validate` prints all of them"


def down(
    *,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for running jobs.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop the fleet's daemon, and wait until it is gone.

    Nothing new starts; running jobs may end within `fleet.drain`. A job that has not ended by then starts again at
    the next `ringfence fleet up`; `ringfence job cancel` cancels it for good.
    """
    from ringfence.config.paths import state_dir
    from ringfence.fleet.client import FleetClient
    from ringfence.fleet.state_directory import has_died

    client = FleetClient()
    pid = client.post("down")["pid"]
    with suppress(ProcessLookupError):  # the daemon may have ended by now
        daemon = os.pidfd_open(pid)
        try:
            if now:
                with suppress(RingfenceError):
                    client.post("down")
            select.select([daemon], [], [])
        finally:
            os.close(daemon)
    if has_died(state_dir(), pid):
        raise InfrastructureFault(
            f"the daemon (process {pid}) ended before it had stopped the fleet; `daemon.log` in "
            f"{str(state_dir() / 'fleet')!r} may show why, and the next `ringfence fleet up` recovers its jobs"
        )
    print_answer({"pid": pid}, (), json=json)


def status(*, server: ServerOption = None, json: JsonOption = False) -> None:
    """Show the state of the fleet and its agents.

    Without a daemon it shows what the fleet's database holds.
    """
    from ringfence.fleet.client import FleetClient
    from ringfence.fleet.reader import open_reader

    client = open_reader(server=server)
    answer, agents = client.get("status"), client.get("agents")
    print_answer({**answer, "agents": agents}, status_lines(answer, agents), json=json)
    if (
        isinstance(client, FleetClient)
        and not json
        and answer["queued"] > sum(agent["queued"] for agent in agents)
    ):
        report_former_agents(client, {agent["name"] for agent in agents})


def reload(*, json: JsonOption = False) -> None:
    """Reload the fleet's files, and print what changed.

    Running jobs continue as they began.
    """
    from ringfence.fleet.client import FleetClient

    _print_changes(FleetClient().post("reload"), json=json)


def diff(*, json: JsonOption = False) -> None:
    """Show what `ringfence fleet reload` would change.

    Compares the files with what the daemon uses.
    """
    from ringfence.fleet.client import FleetClient

    _print_changes(FleetClient().get("diff"), json=json)


def _print_changes(found: list[str], *, json: bool) -> None:
    print_answer({"changes": found}, found or ["nothing has changed"], json=json)


def systemd(*, file: FileOption = None) -> None:
    """Print a systemd unit for the fleet.

    Put it into ~/.config/systemd/user, as NAME.service.
    """
    from ringfence.fleet.daemon.systemd_unit import unit_of

    typer.echo(unit_of(_loaded(file), os.environ), nl=False)


def trigger(
    agent: Annotated[str, typer.Argument(metavar="AGENT")],
    *,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", metavar="TEXT", help="Task; default: the agent's.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", help="Priority; higher numbers start first.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Idempotency key: the same key starts one job only."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait for the job's end and exit with its code.")
    ] = False,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """Start a job of an agent now."""
    from ringfence.cli.fleet.job import wait_for
    from ringfence.fleet.client import open_client

    client = open_client(server)
    body = {"prompt": prompt, "priority": priority, "key": key}
    entered = client.post(
        "agents", agent, "jobs", body={name: value for name, value in body.items() if value is not None}
    )
    if wait:
        raise typer.Exit(wait_for(client, entered["job"]["id"], json=json))
    print_answer(entered, [entered["job"]["id"]], json=json)
    if not json and not entered["is_new"]:
        notify("the job exists already")


def validate(*, file: FileOption = None, json: JsonOption = False) -> None:
    """Validate the fleet's files without starting anything.

    Exit 4 if an agent has a limit that cannot be enforced on this machine.
    """
    import anyio

    from ringfence.fleet.config.warnings import find_warnings
    from ringfence.fleet.preflight import missing_programs, refused_limits

    fleet = _loaded(file)
    refused = anyio.run(refused_limits, fleet)
    warnings = [*anyio.run(missing_programs, fleet), *find_warnings(fleet, os.environ)]
    if json:
        found = {"file": str(fleet.file), "fleet": fleet.settings.name, "agents": list(fleet.agents)}
        untrusted_files = [str(path) for path in fleet.untrusted()]
        more = {"untrusted": untrusted_files, "notes": [str(note) for note in fleet.notes]}
        more |= {"warnings": warnings, "refused": refused}
        typer.echo(safe_json({"schema_version": 1, **found, **more}, indent=2))
    else:
        typer.echo(f"{fleet.file}: fleet {fleet.settings.name!r}, {counted(len(fleet.agents), 'agent')}")
        report_notes(fleet.notes)
        for line in (*refused, *warnings):
            notify(line)
        for untrusted in fleet.untrusted():
            notify(
                f"{str(untrusted)!r} is not trusted in its present form; `ringfence fleet up` requires trust"
            )
    if refused:
        raise typer.Exit(ExitCode.REFUSED)


def show(
    *,
    file: FileOption = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Show only this agent.")
    ] = None,
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value comes from.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the effective configuration of each agent."""
    from ringfence.fleet.config.difference import explicit_values

    fleet = _loaded(file)
    if agent is not None:
        fleet.agent(agent)
    rows = [row for row in explicit_values(fleet) if agent is None or row.key.startswith(f"agents.{agent}.")]
    found: dict[str, Any] = {"values": {row.key: row.value for row in rows}}
    if origin:
        found["origins"] = {row.key: row.origin.data() for row in rows}
    lines = (f"{row.key}: {safe_json(row.value)}" + (f"  # {row.origin}" if origin else "") for row in rows)
    print_answer(found, lines, json=json)


def _loaded(file: Path | None) -> "Fleet":
    from ringfence.fleet.config.loader import load_fleet

    return load_fleet(fleet_file(file), environ=os.environ)


def fleet_file(file: Path | None) -> Path:
    """Return the fleet's file: the given one, or the project's.

    Raises:
        UsageError: There is no such file.
    """
    from ringfence.config.document import find_project_file

    if file is not None:
        return check_file(file, "--file").absolute()
    found = find_project_file(Path.cwd())
    if found is not None:
        return found
    problem = f"there is no ringfence.yaml in {str(Path.cwd())!r} or above"
    if Path("herdctl.yaml").exists():
        raise UsageError(
            f"{problem}, but a herdctl.yaml: `--file herdctl.yaml` reads it as it is, "
            "`ringfence fleet import herdctl.yaml` writes it as ringfence.yaml"
        )
    raise UsageError(f"{problem}; `ringfence init` writes one, `--file FILE` names another")
