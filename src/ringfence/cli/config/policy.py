"""`ringfence config policy`: shows the policy of a sandbox before it is opened, and what can be reached from inside."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, ValidationError

from ringfence.cli import options
from ringfence.cli.options import setting_option, takes_settings
from ringfence.cli.output import print_answer
from ringfence.cli.settings import check_file, load_settings
from ringfence.errors import ConfigurationError, ExitCode, PolicyRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.config.document import Document
    from ringfence.egress.proxy.decision import Decision, Rules
    from ringfence.sandbox import SandboxSpec

_SHOWN_WITH = ("sandbox", "image", "engine", "mode", "allow")
_AllowOption = Annotated[list[str] | None, setting_option("allow")]
_RulesOption = Annotated[
    bool, typer.Option("--rules", help="Also print refused workspaces and denied system calls.")
]


@takes_settings(*_SHOWN_WITH)
def show(
    *,
    workspace: options.WorkspaceOption = Path(),
    rules: _RulesOption = False,
    json: options.JsonOption = False,
    **settings: Any,
) -> None:
    """Show the effective policy of a sandbox.

    Opens a sandbox to read it. Exit 4 if it would be refused for a limit that cannot be enforced here.
    """
    import anyio

    from ringfence.cli.render.policy import policy_lines
    from ringfence.job.sandbox_spec import spec_of

    effective = load_settings(workspace, **settings)
    protect = effective.settings.sandbox.protect
    document = anyio.run(_inspect, spec_of(effective, workspace.resolve()), protect)
    document["loosened"] = [{"what": what, "by": by} for what, by in effective.loosenings()]
    if rules:
        document |= _rules()
    print_answer(document, policy_lines(document), json=json)
    if document["refused"]:
        raise PolicyRefused(str(document["refused"]), rule="limits-enforced")


def explain(
    url: Annotated[str, typer.Argument(metavar="URL", help="https://..., http://..., or HOST[:PORT].")],
    *,
    workspace: options.WorkspaceOption = Path(),
    allow: _AllowOption = None,
    method: Annotated[
        str,
        typer.Option(
            "--method", metavar="WORD", help="Method of an http:// request; inside TLS it cannot be seen."
        ),
    ] = "GET",
    json: options.JsonOption = False,
) -> None:
    """Explain whether an address is allowed, and why.

    Exit code 0 if it is allowed, 4 if not.
    """
    from ringfence.egress.proxy.decision import parse_target

    try:
        wanted = parse_target(url, method)
    except ValueError as exc:
        raise UsageError(str(exc)) from exc
    decision = _egress_rules(workspace, allow).decide(wanted)
    lines = [f"refused: {url}, by rule {decision.rule!r}: {decision.reason}"]
    lines += [decision.remedy] if decision.remedy else []
    if decision.is_allowed:
        lines = [
            f"allowed: {url}, by rule {decision.rule!r}",
            "its addresses are checked when it is called: those of private networks are refused",
        ]
    print_answer({"url": url, "target": wanted.authority, **_shown(decision)}, lines, json=json)
    raise typer.Exit(ExitCode.OK if decision.is_allowed else ExitCode.REFUSED)


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML: a list of {url, method, allowed}.")],
    *,
    workspace: options.WorkspaceOption = Path(),
    allow: _AllowOption = None,
    json: options.JsonOption = False,
) -> None:
    """Test the policy against a file of expectations.

    Exit code 3 if one of the expectations differs.
    """
    from ringfence.egress.proxy.decision import parse_target

    rules = _egress_rules(workspace, allow)
    results = [
        (one, rules.decide(parse_target(one.url, one.method))) for one in read_expectations(check_file(file))
    ]
    differing = [(one, decision) for one, decision in results if one.allowed != decision.is_allowed]
    rows = [
        {
            "url": one.url,
            "method": one.method,
            "expected": one.allowed,
            "as_expected": one.allowed == decision.is_allowed,
            **_shown(decision),
        }
        for one, decision in results
    ]
    lines = []
    for one, decision in differing:
        found = f"allowed by rule {decision.rule!r}" if decision.is_allowed else f"refused: {decision.reason}"
        wanted = "allowed" if one.allowed else "refused"
        lines.append(f"differs: {one.method} {one.url} should be {wanted}, is {found}")
    lines.append(f"{len(results) - len(differing)} of {len(results)} as expected")
    print_answer({"results": rows}, lines, json=json)
    raise typer.Exit(ExitCode.CHECK_RED if differing else ExitCode.OK)


def _egress_rules(workspace: Path, allow: list[str] | None) -> "Rules":
    from ringfence.config.egress import Egress
    from ringfence.egress.proxy.decision import Rules

    settings = load_settings(workspace, allow=allow).settings.egress
    return Rules(Egress(allow=settings.allow, deny=settings.deny))


def _shown(decision: "Decision") -> dict[str, object]:
    return {
        "allowed": decision.is_allowed,
        "rule": decision.rule,
        "reason": decision.reason or None,
        "remedy": decision.remedy or None,
    }


async def _inspect(spec: "SandboxSpec", protect: "Sequence[str]") -> dict[str, object]:
    from ringfence.config.paths import state_dir
    from ringfence.job.sandbox_spec import check_host
    from ringfence.sandbox import Sandbox
    from ringfence.sandbox.policy import effective_policy
    from ringfence.sandbox.registry import examine, limit_refusal
    from ringfence.sandbox.workspace.open import open_workspace
    from ringfence.sandbox.workspace.placement import protected_placement

    assert spec.workspace is not None
    traits = await examine(spec)
    if not traits.is_fence:
        check_host(spec, traits, protect)
    opened = open_workspace(spec.workspace, spec.mode, state=state_dir(), holder=None, traits=traits)
    async with opened as workspace:
        placement = protected_placement(workspace, protect)
    # An empty sandbox shows how limits are enforced and what is shown; the workspace is not touched.
    # The policy is printed even if the sandbox would be refused.
    refused = await limit_refusal(spec)
    empty = {"workspace": None, "mode": None, **({"soft_limits": True} if refused else {})}
    async with Sandbox.start(spec.model_copy(update=empty)) as sandbox:
        found = effective_policy(spec, placement, sandbox.facts)
        return {
            "backend": sandbox.facts.backend,
            "chosen_because": sandbox.chosen_because,
            **found,
            "workspace_is": workspace.mode,
            "refused": refused,
        }


def _rules() -> dict[str, object]:
    from ringfence.sandbox.policy import RULES
    from ringfence.sandbox.seccomp import explain
    from ringfence.sandbox.workspace.open import REFUSALS
    from ringfence.sandbox.workspace.protect.auto_executed_files import AUTO_EXECUTED_FILES

    return {
        "refused_workspaces": [f"{row.rule}: {row.because}" for row in REFUSALS],
        "refused_specs": [f"{rule.name}: {rule.because}" for rule in RULES],
        "protected_files": [f"{row.path} ({row.treatment}): {row.because}" for row in AUTO_EXECUTED_FILES],
        "denied_system_calls": [
            f"{name}: {because} ({', '.join(calls)})" for name, because, calls in explain()
        ],
    }


_SHAPE = "{url: ADDRESS, allowed: true or false}, and perhaps method"


class Expectation(BaseModel):
    """One expectation."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    url: str
    allowed: bool
    method: str = "GET"


def read_expectations(file: Path) -> list[Expectation]:
    """Read the expectations in a file.

    Raises:
        ConfigurationError: It cannot be read, or an item is not an expectation; the message names its position.
    """
    from ringfence.config.document import read_regular_file
    from ringfence.config.yaml import parse_value

    items, document = parse_value(read_regular_file(file, follow_link=True), file)
    if not isinstance(items, list):
        start = document.place(())
        reason = f"this file must be a list of expectations, each of which is {_SHAPE}"
        raise ConfigurationError(reason, file=file, line=start.line, column=start.column)
    if not items:
        raise ConfigurationError("it holds no expectation; write a list of " + _SHAPE, file=file)
    return [_expectation(item, index, document) for index, item in enumerate(items)]


def _expectation(item: Any, index: int, document: "Document") -> Expectation:
    from ringfence.egress.proxy.decision import parse_target

    place = document.place((index,))
    try:
        found = Expectation.model_validate(item)
        parse_target(found.url, found.method)
    except ValidationError as exc:
        detail = exc.errors(include_url=False)[0]
        where = ".".join(str(part) for part in detail["loc"])
        reason = f"{where}: {detail['msg'].lower()}; an expectation is {_SHAPE}"
    except ValueError as exc:
        reason = str(exc)
    else:
        return found
    raise ConfigurationError(reason, file=document.file, line=place.line, column=place.column)
