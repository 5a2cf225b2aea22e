"""`ringfence policy`: what holds in a sandbox, before one is opened."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options
from ringfence.cli.settings import load_settings, spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.sandbox import SandboxSpec


def policy(
    *,
    workspace: options.WorkspaceOption = Path(),
    sandbox: options.SandboxOption = None,
    image: options.ImageOption = None,
    engine: options.EngineOption = None,
    mode: options.ModeOption = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Also what is refused and which system calls are denied.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Print the effective policy of a sandbox for this workspace. One is opened and asked."""
    import anyio

    from ringfence.cli.escape import safe_json, visible
    from ringfence.cli.plain import policy_lines

    effective = load_settings(workspace, sandbox=sandbox, image=image, engine=engine, mode=mode)
    protect = effective.settings.sandbox.protect
    document = anyio.run(_inspect, spec_of(effective, workspace.resolve()), protect)
    document["loosened"] = [{"what": what, "by": by} for what, by in effective.loosenings()]
    if rules:
        document |= _rules()
    if json:
        typer.echo(safe_json({"schema_version": 1, **document}, indent=2))
        return
    for line in policy_lines(document):
        typer.echo(visible(line, one_line=True))


async def _inspect(spec: "SandboxSpec", protect: "Sequence[str]") -> dict[str, object]:
    from ringfence.config.paths import state_dir
    from ringfence.job.host import HOST, check_host
    from ringfence.sandbox import Placement, Sandbox
    from ringfence.sandbox.policy import effective_policy
    from ringfence.sandbox.registry import why_unseen
    from ringfence.sandbox.workspace.ownership import decide_for
    from ringfence.sandbox.workspace.protected import overlays_for
    from ringfence.sandbox.workspace.refusals import check_workspace

    assert spec.workspace is not None
    workspace = check_workspace(spec.workspace, home=Path.home(), state=state_dir())
    if spec.backend == HOST:
        check_host(spec, protect)
        placement = Placement(os.geteuid(), os.getegid(), workspace, workspace)
    else:
        decision = decide_for(workspace, spec.mode, unseen=await why_unseen(spec))
        placement = Placement(
            decision.uid,
            decision.gid,
            workspace,
            workspace,
            workspace_read_only=decision.mode == "read_only",
            overlays=overlays_for(workspace, protect=protect) if decision.mode != "read_only" else (),
        )
    mode = "bind" if spec.backend == HOST else decision.mode
    # An empty sandbox tells how limits are enforced and what is shown; the workspace is not touched.
    async with Sandbox.open(
        spec.model_copy(update={"workspace": None, "mode": None, "setup": ()})
    ) as sandbox:
        found = effective_policy(spec, placement, sandbox.facts)
        return {
            "backend": sandbox.facts.backend,
            "chosen_because": sandbox.chosen_because,
            **found,
            "workspace_is": mode,
        }


def _rules() -> dict[str, object]:
    from ringfence.sandbox.policy import RULES
    from ringfence.sandbox.seccomp.compile import explain
    from ringfence.sandbox.workspace.protected import PROTECTED
    from ringfence.sandbox.workspace.refusals import REFUSALS

    return {
        "refused_workspaces": [f"{row.rule}: {row.because}" for row in REFUSALS],
        "refused_specs": [f"{rule.name}: {rule.because}" for rule in RULES],
        "protected_files": [f"{row.path} ({row.treatment}): {row.because}" for row in PROTECTED],
        "denied_system_calls": [
            f"{name}: {because} ({', '.join(calls)})" for name, because, calls in explain()
        ],
    }
