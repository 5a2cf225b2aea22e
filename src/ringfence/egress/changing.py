"""Changes of what a running sandbox may reach. Pure; the user makes them, nobody inside can."""

from typing import Literal

from pydantic import ValidationError

from ringfence.config.egress import WEB_PORTS, Egress, EgressRule
from ringfence.egress.address import refused_target
from ringfence.errors import PolicyRefused, UsageError
from ringfence.frozen import frozen

Action = Literal["allow", "deny"]


@frozen
class Change:
    """What comes of a change."""

    egress: Egress
    """What holds then."""
    rule: EgressRule
    is_loosening: bool


def changed(egress: Egress, action: Action, text: str) -> Change:
    """What is granted after a change.

    To allow what was denied by the same words takes the denial away; to deny what was allowed by them takes the leave
    away. Else the rule is added.

    Raises:
        UsageError: It is no rule, or a denial of a preset that is not allowed.
        PolicyRefused: It leads where nothing may.
    """
    try:
        rule = EgressRule.model_validate(text)
        if action == "deny" and rule in egress.allow:
            left = tuple(one for one in egress.allow if one != rule)
            return Change(egress.model_copy(update={"allow": left}), rule, is_loosening=False)
        if action == "deny" and rule.preset is not None:
            raise UsageError(
                f"{text!r} cannot be denied: as such it is not allowed; deny hosts by their names"
            )
        if action == "deny":
            found = Egress(allow=egress.allow, deny=(*egress.deny, rule), swap=egress.swap)
            return Change(found, rule, is_loosening=False)
        denied = tuple(one for one in egress.deny if one != rule)
        allowed = (*(one for one in egress.allow if one != rule), rule)
        found = Egress(allow=allowed, deny=denied, swap=egress.swap)
    except ValidationError as exc:
        detail = exc.errors(include_url=False)[0]
        said = str(detail.get("ctx", {}).get("error", detail["msg"]))
        raise UsageError(said if repr(text) in said else f"{text!r}: {said}") from exc
    _check(rule)
    return Change(found, rule, is_loosening=True)


def _check(rule: EgressRule) -> None:
    if rule.preset == "model":
        raise PolicyRefused(
            "the model cannot be granted to a sandbox that runs: its gateway is made at the start; "
            "create it with --allow model",
            rule="egress-target",
        )
    for port in rule.ports or WEB_PORTS:
        reason = refused_target(rule.host or "", port)
        if reason is not None:
            raise PolicyRefused(f"egress to '{rule}' is refused: {reason}", rule="egress-target")
