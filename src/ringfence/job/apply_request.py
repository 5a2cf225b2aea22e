"""Requests of programs to apply the changes of a run, which a person decides on.

A request is a file in the state directory, so that it needs no fleet; it is not beside the record of its run, which is
sealed. It counts until the changes are applied or rejected, or their run is removed.
"""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault
from ringfence.filesystem import replace_file
from ringfence.job.changes import is_decided
from ringfence.journal import run_dir

_DIRECTORY = "apply-requests"
_MAX_BYTES = 16 * 1024
_MAX_NAME_CHARS = 200


class ApplyRequest(msgspec.Struct, frozen=True):
    """A request that waits for a person."""

    run: str
    by: str
    """The program, by the name that it gives of itself."""
    at: str
    """When it was made."""
    workspace: str


def request_apply(run: str, *, by: str, workspace: str) -> ApplyRequest:
    """Ask a person to apply the changes of a run; asking again replaces the request.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    request = ApplyRequest(run, _plain(by[:_MAX_NAME_CHARS]), at, _plain(workspace))
    file = state_dir() / _DIRECTORY / f"{run}.json"
    try:
        make_private_dir(file.parent)
        replace_file(file, msgspec.json.encode(request))
    except OSError as exc:
        raise InfrastructureFault(
            f"the request cannot be kept in {str(file)!r}: {exc.strerror or exc}; `ringfence apply {run[-8:]}` applies "
            "the changes"
        ) from exc
    return request


def _plain(text: str) -> str:
    """Text that JSON can hold: names of files may have bytes that are not UTF-8."""
    return text.encode("utf-8", "replace").decode()


def apply_requests() -> list[ApplyRequest]:
    """The requests that wait, the newest first. Files of the others are removed."""
    waiting = []
    for file in (state_dir() / _DIRECTORY).glob("*.json"):
        run = run_dir(file.stem)
        if not run.is_dir() or is_decided(run):
            file.unlink(missing_ok=True)
        elif (request := _read(file)) is not None:
            waiting.append(request)
    return sorted(waiting, key=lambda request: request.at, reverse=True)


def find_apply_request(name: str) -> ApplyRequest | None:
    """Find the request of a run by its id or its last eight digits."""
    return next((each for each in apply_requests() if name in (each.run, each.run[-8:])), None)


def _read(file: Path) -> ApplyRequest | None:
    try:
        with file.open("rb") as opened:
            request = msgspec.json.decode(opened.read(_MAX_BYTES), type=ApplyRequest)
    except (OSError, msgspec.MsgspecError):
        return None
    return request if request.run == file.stem else None
