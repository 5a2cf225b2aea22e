"""`ringfence doctor`: checks whether this machine can run sandboxes, and whether they contain attacks."""

import os
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.config.secrets import check_credentials, credential_line, ending_credentials
from ringfence.cli.options import JsonOption
from ringfence.cli.output import print_answer
from ringfence.cli.settings import load_settings
from ringfence.errors import ExitCode, RingfenceError, UsageError

if TYPE_CHECKING:
    from ringfence.sandbox import SandboxSpec
    from ringfence.sandbox.base import Backend
    from ringfence.testing.attack import AttackResult

_ENFORCED = {
    "kernel": "enforced by the kernel",
    "soft": "soft: watched, short bursts are not stopped",
    "none": "not enforced here",
}
_DEFAULT = "bubblewrap"
_WIDTH = 110
_QUICK_ATTACKS = ("mount", "ptrace-guest", "home", "interfaces", "proc-sys")


def doctor(
    *,
    attack: Annotated[
        bool, typer.Option("--attack", help="Run the whole escape suite; takes a minute or two.")
    ] = False,
    image: Annotated[
        str | None,
        typer.Option(
            "--image", metavar="IMAGE", help="Image for container backends; without it none is opened."
        ),
    ] = None,
    auth: Annotated[
        bool,
        typer.Option(
            "--auth", help="Only test each credential with one real call. Exit 77 if one is refused."
        ),
    ] = False,
    sandbox: Annotated[
        str | None, typer.Option("--sandbox", metavar="BACKEND", help="Check this backend only.")
    ] = None,
    show_role: Annotated[
        bool,
        typer.Option("--show-role", help="Print the role that a backend needs, even if all is granted."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check this machine: try escapes, and say what is missing.

    The last line names the backends that are ready. Exit code 0: at least one is; 1: an attack succeeded in one;
    78: the configuration here is not valid; 125: no backend is ready, or none for the image of --image.
    """
    if auth:
        if attack or image is not None or sandbox is not None or show_role:
            raise UsageError("--auth checks credentials only; leave out the other options")
        raise typer.Exit(check_credentials(load_settings(Path()), json=json))
    import anyio

    from ringfence.sandbox.registry import get_backend

    document = anyio.run(_examine, attack, image, sandbox)
    requested = [
        one for one in document["backends"] if image is None or get_backend(one["name"]).traits.needs_image
    ]
    is_ready = any(one["usable"] for one in requested)
    document["verdict"] = _verdict(document, is_ready=is_ready)
    print_answer(document, _lines(document, show_role=show_role), json=json)
    if not is_ready:
        raise typer.Exit(ExitCode.SANDBOX_START)
    if any(_broken(one) for one in document["backends"]):
        raise typer.Exit(ExitCode.FAILED)
    if document["credentials_unknown"]:
        raise typer.Exit(ExitCode.CONFIGURATION)


async def _examine(everything: bool, image: str | None, sandbox: str | None) -> dict[str, Any]:
    from ringfence.job.machine import machine_name
    from ringfence.job.sandbox_spec import spec_of
    from ringfence.sandbox import SandboxSpec
    from ringfence.sandbox.bubblewrap.bwrap import find_bwrap
    from ringfence.sandbox.bubblewrap.limits import find_plan
    from ringfence.sandbox.registry import backend_names, get_backend, limit_refusal

    names = backend_names() if sandbox is None else [get_backend(sandbox).name]
    limits = await find_plan()
    refused: str | None = None
    configured = SandboxSpec()
    try:
        configured = spec_of(load_settings(Path()), None)
        refused = await limit_refusal(configured)
        ending, problem = await ending_credentials(load_settings(Path())), None
    except RingfenceError as exc:  # the machine is checked even if the configuration is not valid
        ending, problem = [], str(exc)
    bwrap = find_bwrap()
    backends = [
        await _backend(name, everything, image, configured)
        for name in names
        if get_backend(name).traits.is_fence
    ]
    return {
        "machine": machine_name(),
        "bwrap": f"{'.'.join(map(str, bwrap.version))} ({bwrap.origin})" if bwrap else None,
        "limits": {"by": limits.kind, "reason": limits.reason, "refused": refused},
        "credentials": ending,
        "credentials_unknown": problem,
        "backends": backends,
    }


async def _backend(
    name: str, everything: bool, image: str | None, configured: "SandboxSpec"
) -> dict[str, Any]:
    from ringfence.sandbox import Sandbox, SandboxSpec
    from ringfence.sandbox.registry import get_backend
    from ringfence.testing.attack import open_beside, run_attacks

    backend = get_backend(name)
    place: dict[str, Any] = {"kubernetes": configured.kubernetes}
    if configured.backend == name:
        place["engine"] = configured.engine
    unopened = await _reach(backend, SandboxSpec(backend=name, **place))
    if unopened["reason"] is not None or (backend.traits.needs_image and image is None):
        return unopened
    image = image if backend.traits.needs_image else None
    try:
        with _scratch() as workspace:
            spec = SandboxSpec(backend=name, image=image, workspace=workspace, **place)
            async with Sandbox.open(spec) as sandbox:
                notes = list(sandbox.facts.notes)
                enforced = dict(sandbox.facts.enforced)
            chosen = None if everything else _QUICK_ATTACKS
            results = await run_attacks(lambda: open_beside(spec), workspace, chosen)
    except RingfenceError as exc:
        return {**unopened, "usable": False, "reason": str(exc)}
    attacks = [_row(one) for one in results]
    return {**unopened, "opened": True, "enforced": enforced, "notes": notes, "attacks": attacks}


async def _reach(backend: "Backend", spec: "SandboxSpec") -> dict[str, Any]:
    """The result for a backend of which no sandbox was opened: whether its service answers and grants what it needs."""
    try:
        access = await backend.examine_access(spec)
    except RingfenceError as exc:
        return _unopened(backend.name, reason=str(exc))
    if access is None:
        lacking = await backend.unavailable()
        return _unopened(backend.name, reason=None if lacking is None else str(lacking))
    reason = None
    if access.missing:
        reason = (
            f"permissions are missing: {', '.join(access.missing)}; apply the role below, or have it applied"
        )
    found = {"facts": dict(access.facts), "missing": list(access.missing), "manifest": access.manifest}
    return {**_unopened(backend.name, reason=reason), "access": found}


def _unopened(name: str, *, reason: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "usable": reason is None,
        "opened": False,
        "reason": reason,
        "enforced": {},
        "notes": [],
        "attacks": [],
        "access": None,
    }


def _row(result: "AttackResult") -> dict[str, Any]:
    return {"name": result.name, "group": result.group, "held": result.held, "detail": result.detail}


@contextmanager
def _scratch() -> Iterator[Path]:
    """Create a workspace for the attacks; for root, it belongs to an unprivileged user."""
    import tempfile

    from ringfence.removal import remove_tree
    from ringfence.sandbox.workspace.open import RESERVED_ID

    outer = Path(tempfile.mkdtemp(prefix="ringfence-doctor-"))
    try:
        workspace = outer / "workspace"
        workspace.mkdir()
        if os.getuid() == 0:
            os.chown(workspace, RESERVED_ID, RESERVED_ID)
            outer.chmod(0o711)
        yield workspace
    finally:
        with suppress(OSError):  # the results are printed even if the directory remains
            remove_tree(outer)


def _state(one: dict[str, Any]) -> str:
    """Describe the state of a backend; a missing backend is reported in capitals only if it is the default."""
    if not one["usable"]:
        word = "CANNOT BE USED" if one["name"] == _DEFAULT else "not available"
        return f"{word}: {one['reason']}"
    return "ok" if one["opened"] else "answers; open one with --image"


def _broken(backend: dict[str, Any]) -> list[str]:
    return [result["name"] for result in backend["attacks"] if not result["held"]]


def _verdict(document: dict[str, Any], *, is_ready: bool) -> str:
    """Summarize the machine in one line."""
    backends = document["backends"]
    broken = [f"{one['name']} ({', '.join(_broken(one))})" for one in backends if _broken(one)]
    ready = [one["name"] for one in backends if one["opened"] and not _broken(one)]
    unopened = [one["name"] for one in backends if one["usable"] and not one["opened"]]
    lacking = [f"{one['name']} ({_short_reason(one['reason'])})" for one in backends if not one["usable"]]
    parts = [] if is_ready else ["Not ready"]
    if document["credentials_unknown"]:
        parts = ["Not ready: the configuration here is not valid"]
        title = "ready once it is"
    else:
        title = "Ready" if is_ready else "without the image"
    named = {
        "ATTACKS SUCCEEDED in": broken,
        title: ready,
        "usable with --image": unopened,
        "not available": lacking,
    }
    parts += [f"{title}: {', '.join(names)}" for title, names in named.items() if names]
    if document["limits"]["refused"]:
        parts.append("the limits of the configuration here are refused")
    line = "; ".join(parts)
    return line[0].upper() + line[1:]


def _short_reason(reason: str) -> str:
    """Return the first clause of a reason, which is printed in full with its backend."""
    return re.split(r"[:;] ", reason, maxsplit=1)[0]


def _lines(document: dict[str, Any], *, show_role: bool) -> Iterator[str]:
    limits = document["limits"]
    yield f"machine: {document['machine']}"
    yield f"bwrap:   {document['bwrap'] or 'none'}"
    yield f"limits:  {limits['by']}: {limits['reason']}"
    if limits["refused"]:
        yield f"  REFUSED by the configuration here: {limits['refused']}"
    if document["credentials_unknown"]:
        yield f"secrets: {document['credentials_unknown']}"
    for one in document["credentials"]:
        yield credential_line(one)
    for one in document["backends"]:
        first, *more = textwrap.wrap(f"{one['name']}: {_state(one)}", _WIDTH, break_long_words=False)
        yield first
        yield from (f"    {line}" for line in more)
        if one["access"] is not None:
            yield from _access_lines(one["access"], show_role=show_role)
        for limit, how in sorted(one["enforced"].items()):
            yield f"  limit on {limit}: {_ENFORCED[how]}"
        for note in one["notes"]:
            yield f"  {note}"
        for result in one["attacks"]:
            word = "held  " if result["held"] else "BROKEN"
            yield f"  {word} {result['group']}: {result['name']}: {result['detail']}"
    yield document["verdict"]


def _access_lines(access: dict[str, Any], *, show_role: bool) -> Iterator[str]:
    for name, state in access["facts"].items():
        yield f"  {name}: {state}"
    for permission in access["missing"]:
        yield f"  MISSING permission: {permission}"
    if access["missing"] or show_role:
        yield "  a role with all that is needed; save it, and `kubectl apply -f FILE`:"
        yield from access["manifest"].splitlines()
