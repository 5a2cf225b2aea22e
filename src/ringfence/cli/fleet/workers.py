"""The commands `ringfence fleet workers`: the processes on all machines that run a fleet's jobs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption, ServerOption
from ringfence.cli.output import print_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

_Worker = Annotated[str, typer.Argument(metavar="WORKER|MACHINE")]


def list_workers(*, server: ServerOption = None, json: JsonOption = False) -> None:
    """List the fleet's workers."""
    from ringfence.cli.render.console import print_list
    from ringfence.fleet.client import open_client

    found = open_client(server).get("workers")
    rows = [
        (
            worker["id"][:8],
            worker["host"],
            _state(worker),
            f"{worker['running']}/{worker['capacity']}",
            ", ".join(worker["labels"]),
            worker["version"],
        )
        for worker in found
    ]
    columns = ("worker", "machine", "state", "jobs", "labels", "version")
    print_list({"workers": found}, columns, rows, json=json)


def drain(worker: _Worker, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Let workers take no more jobs; running jobs continue."""
    _act(worker, "drain", server, json=json)


def resume(worker: _Worker, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Let workers take jobs again."""
    _act(worker, "resume", server, json=json)


def remove(worker: _Worker, *, server: ServerOption = None, json: JsonOption = False) -> None:
    """Remove a dead worker from the list."""
    from ringfence.fleet.client import open_client

    _report(open_client(server).delete("workers", worker), "removed", json=json)


def _act(worker: str, action: str, server: str | None, *, json: bool) -> None:
    from ringfence.fleet.client import open_client

    _report(open_client(server).post("workers", worker, action), None, json=json)


def _report(workers: "Sequence[dict[str, Any]]", outcome: str | None, *, json: bool) -> None:
    lines = [f"{each['id'][:8]} on {each['host']}: {outcome or _state(each)}" for each in workers]
    print_answer({"workers": workers}, lines, json=json)


def _state(worker: "dict[str, Any]") -> str:
    if not worker["is_alive"]:
        return "dead"
    return "draining" if worker["is_draining"] else "alive"
