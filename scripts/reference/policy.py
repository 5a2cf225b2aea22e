"""docs/reference/policy.md."""

import errno

from reference.markdown import code, table
from ringfence.egress.engine.routes import ROUTES
from ringfence.sandbox.bubblewrap.view import SYSTEM
from ringfence.sandbox.policy import RULES as SPEC_RULES
from ringfence.sandbox.seccomp.rules import RULES as CALL_RULES
from ringfence.sandbox.workspace.open import REFUSALS, RESERVED_ID, choose_user_and_mode
from ringfence.sandbox.workspace.protect.auto_executed_files import AUTO_EXECUTED_FILES
from ringfence.sandbox.workspace.run_as import Actor

_HEAD = """\
# Policy

What a sandbox shows, refuses and protects, from the tables that the code itself uses. `ringfence config policy show`
prints the policy for one workspace on one machine.
"""
_PROTECTED = """\
`read_only`: if the file exists, the agent cannot change it. `reported`: it can, and the change is named at the end of
the run as something that runs on your machine. A protected file that did not exist and that the agent creates is
reported as well. *anywhere*: also in subdirectories (where it is reported). `sandbox.protect` adds patterns.
"""

_SHOWN = """\
a short list of files of `/etc`; your toolchains (pyenv, uv, nvm, cargo, ...) unless
`sandbox.hide_toolchains`. Nothing else of the host.
"""

_ENGINE = """\
What the filtered engine forwards, for containers with the label of `engine.label` only. `{}` is a container, `{exec}` a
command that was created from inside. *Needs* is what `engine.allow` must grant. Every other call is refused.
"""


def page() -> str:
    """The page."""
    return "\n".join(
        [
            _HEAD,
            "## Workspaces that are refused\n",
            table(("rule", "because"), [(code(one.rule), one.because) for one in REFUSALS]),
            "## Requests that are refused\n",
            table(("rule", "because"), [(code(one.name), one.because) for one in SPEC_RULES]),
            "## As whom a sandbox runs\n",
            _whose(),
            "## Shown read-only\n",
            f"{', '.join(code(path) for path in SYSTEM)}; {_SHOWN}",
            "## Files of the workspace that your machine runs or trusts\n",
            _PROTECTED,
            table(
                ("path", "treatment", "anywhere", "because"),
                [
                    (code(one.path), code(one.treatment), "yes" if one.anywhere else "", one.because)
                    for one in AUTO_EXECUTED_FILES
                ],
            ),
            "## Calls of the engine\n",
            _ENGINE,
            table(
                ("call", "parameters", "needs"),
                [
                    (
                        f"{one.method} {code('/' + one.path)}",
                        ", ".join(code(name) for name in one.query),
                        code(one.needs) if one.needs else "",
                    )
                    for one in ROUTES
                ],
            ),
            "## System calls that are refused\n",
            table(("group", "calls", "answer", "because"), _calls()),
        ]
    )


def _whose() -> str:
    rows = [
        ("a user", "the caller", "the caller", "`bind`"),
        ("a user", "somebody else", "the caller", "`clone`; `bind` is refused"),
        ("root", "a user", "that user", "`bind`"),
        ("root", "root", f"the reserved id {RESERVED_ID}", "`clone`; `bind` by an idmapped mount"),
    ]
    for (caller, owner, _, mode), ids in zip(rows, ((7, 7), (7, 8), (0, 8), (0, 0)), strict=True):
        assert f"`{_decided(*ids)}`" in mode.split(";")[0], (caller, owner)
    return table(("caller", "workspace of", "runs as", "mode, unless another is asked for"), rows)


def _decided(caller: int, owner: int) -> str:
    return choose_user_and_mode(Actor(caller, caller), Actor(owner, owner), asked=None)[1]


def _calls() -> list[tuple[str, str, str, str]]:
    return [
        (
            rule.group,
            ", ".join(code(name) for name in rule.calls) + (" (some arguments)" if rule.conditions else ""),
            code(errno.errorcode[rule.errno]),
            rule.why,
        )
        for rule in CALL_RULES
    ]
