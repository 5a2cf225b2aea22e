"""docs/reference/runtimes.md."""

from typing import get_args

from reference.markdown import attribute_docs, code, table
from ringfence.config.fields import all_fields
from ringfence.job.outcome import outcome_of, outcome_of_agent
from ringfence.job.resolution import DEFAULT_MODELS
from ringfence.runtime.agent_cli.base import AgentCli
from ringfence.runtime.agent_cli.exit_status import Ended, Ending, error_of
from ringfence.runtime.options import SUPPORT, OptionSupport, RuntimeName
from ringfence.runtime.registry import agent_cli_of, agent_cli_runtimes

_HEAD = """\
# Runtimes

Which agent works in a run: `--runtime`, or `run.runtime`. Every runtime works with every backend, without a key inside;
on the bare host (`--sandbox host`) only `api` does. [Guide](../how-to/claude-and-codex.md).
"""
_WHAT = {
    "api": "Our own loop over the Messages API, on the host; its tools act inside.",
    "claude-cli": "The `claude` command line program, inside.",
    "claude-sdk": "`claude` inside, steered by the Claude Agent SDK on the host.",
    "codex-cli": "The `codex` command line program, inside.",
}
_OPTIONS = """\
## Which runtime has which option

An option that a runtime does not have is an error that names those that do. Only the section `client:` of files is
ignored by the runtime `api`, which has no agent CLI.
"""
_ENDS = """\
## How an agent CLI ends

Neither the exit code of an agent CLI nor its last message is sufficient: `claude` exits with 0 when it was interrupted
and when tools were denied. Each way to end has a state and a reason of its own; `unverified` is followed by the check,
if there is one.
"""


def page() -> str:
    """The page."""
    names = get_args(RuntimeName)
    return "\n".join(
        [
            _HEAD,
            table(("runtime", "what", "tried with", "model, if none is named"), map(_runtime, names)),
            *(f"Install {_client(name).title}: `{_client(name).install}`\n" for name in _programs()),
            _OPTIONS,
            table(
                ("option", "setting", "flag", *names),
                [_option(option, support) for option, support in SUPPORT.items()],
            ),
            _ENDS,
            table(("how", "state", "reason and next step"), [_end(ending) for ending in Ending]),
        ]
    )


def _programs() -> list[str]:
    return [name for name in agent_cli_runtimes() if name.endswith("-cli")]


def _client(runtime: str) -> AgentCli:
    return agent_cli_of(runtime)


def _runtime(name: str) -> tuple[str, ...]:
    tried = ""
    if name in agent_cli_runtimes():
        oldest, newest = _client(name).tested
        tried = oldest if oldest == newest else f"{oldest} to {newest}"
    model = DEFAULT_MODELS.get(name, all_fields()["run.model"].default)
    return code(name), _WHAT[name], tried, code(model)


def _option(option: str, support: OptionSupport) -> tuple[str, ...]:
    has = tuple("yes" if name in support.runtimes else "" for name in get_args(RuntimeName))
    return code(option), code(support.setting), code(support.flag), *has


def _end(ending: Ending) -> tuple[str, str, str]:
    told = "its message" if ending is not Ending.DONE else ""
    error = error_of(Ended(ending, told))
    outcome = outcome_of(error) if error is not None else outcome_of_agent(ending.value, told)
    meaning = attribute_docs(Ending)[ending.name]
    return f"{code(ending.value)}: {meaning}", code(outcome.state.value), outcome.reason
