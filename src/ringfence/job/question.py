"""Defines the questions of a run: what it was refused, and the narrowest rule that would let it continue.

A rule is made from fields of events that the host recorded, never from a text of the agent. Code that applies a rule
reads it with `read_rule` again, which refuses rules that no answer may grant.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import anyio
import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from ringfence.config.egress import AllowRules, EgressRule
from ringfence.config.host import HIGHEST_PORT
from ringfence.config.model import Settings
from ringfence.config.names import QuestionKind
from ringfence.config.values import no_boolean
from ringfence.egress.address import is_public, refused_target
from ringfence.errors import LimitReached, PolicyRefused
from ringfence.events import (
    AgentAnswered,
    EgressDecided,
    Event,
    JSONObject,
    ModelReplied,
    PermissionDecided,
    QuestionAnswered,
    ToolCalled,
    ToolReturned,
)
from ringfence.frozen import frozen
from ringfence.tool.ask import ASK_PERSON, MAX_QUESTION_CHARS

_ASK_USER = "AskUserQuestion"
"""The tool by which claude asks its user."""
_NOT_LISTED = "default"
"""The rule in `egress.decided` for a host that no rule names. Other refusals are by the user's own rules, or final."""
_BUDGETS = ("tokens", "cost_usd")


class _Rule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class HostRule(_Rule):
    """A rule that allows one host on one port."""

    host: Annotated[str, StringConstraints(min_length=1, max_length=253)]
    port: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=HIGHEST_PORT)]

    def __str__(self) -> str:
        return f"connect to {self.egress}"

    @property
    def egress(self) -> EgressRule:
        """The rule of the gate."""
        return EgressRule(host=self.host, ports=(self.port,))

    @property
    def options(self) -> list[str]:
        """The options of `ringfence run` that grant it."""
        return ["--allow", str(self.egress)]


def _check_tool(name: str) -> str:
    if name.startswith("mcp__") and not all(name.removeprefix("mcp__").partition("__")):
        raise ValueError(f"{name!r} names all tools of a server")
    return name


class ToolRule(_Rule):
    """A rule that allows one tool; `mcp__SERVER`, which claude takes for all tools of a server, is none."""

    tool: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,128}$"), AfterValidator(_check_tool)]

    def __str__(self) -> str:
        return f"use the tool {self.tool}"

    @property
    def options(self) -> list[str]:
        """The options of `ringfence run` that grant it."""
        return ["--permit-tool", self.tool]


class LimitRule(_Rule):
    """A rule that changes the value of a limit."""

    limit: Literal["tokens", "cost_usd"]
    to: Annotated[float, BeforeValidator(no_boolean), Field(gt=0, le=1e12, allow_inf_nan=False)]

    def __str__(self) -> str:
        return (
            f"use up to {self.to:,.0f} tokens" if self.limit == "tokens" else f"spend up to ${self.to:,.2f}"
        )

    @property
    def options(self) -> list[str]:
        """The options of `ringfence run` that grant it."""
        return [f"--max-{self.limit.replace('_', '-')}", f"{self.to:.12g}"]


Rule = HostRule | ToolRule | LimitRule
_MODELS: Mapping[str, type[Rule]] = {"host": HostRule, "tool": ToolRule, "budget": LimitRule}


def read_rule(kind: str, fields: Mapping[str, Any]) -> Rule | None:
    """Return the rule of a question; None for the agent's own question, which requests no rule.

    Raises:
        PolicyRefused: It is not a rule that an answer may grant.
    """
    if kind == "question" and not fields:
        return None
    model = _MODELS.get(kind)
    try:
        if model is None:
            raise ValueError(f"there is no kind {kind!r}")
        rule = model.model_validate(dict(fields))
        if isinstance(rule, HostRule):
            _check_host(rule)
    except ValueError as exc:
        reason = exc.errors(include_url=False)[0]["msg"] if isinstance(exc, ValidationError) else str(exc)
        raise PolicyRefused(
            f"the rule {dict(fields)!r} cannot be granted by an answer: {reason}", rule="question-rule"
        ) from exc
    return rule


def _check_host(rule: HostRule) -> None:
    """Check that a host may be granted: one host of the public Internet, as far as its name shows.

    Raises:
        ValueError: It may not.
    """
    from ipaddress import ip_address

    from pydantic import TypeAdapter

    TypeAdapter(AllowRules).validate_python((rule.egress,))
    if rule.egress.is_pattern or rule.egress.preset is not None:
        raise ValueError("it names more than one host")
    reason = refused_target(rule.host, rule.port)
    if reason is not None:
        raise ValueError(reason)
    try:
        address = ip_address(rule.host.strip("[]"))
    except ValueError:
        return
    if not is_public(address):
        raise ValueError(
            f"{rule.host} is in a private or special network, which only the configuration can allow"
        )


def with_rules(settings: Settings, rules: Iterable[Rule]) -> Settings:
    """Return settings extended by rules; `egress.deny` and `tools.deny` still take precedence."""
    for rule in rules:
        match rule:
            case HostRule():
                egress = settings.egress
                allow = (*(one for one in egress.allow if one != rule.egress), rule.egress)
                settings = settings.model_copy(update={"egress": egress.model_copy(update={"allow": allow})})
            case ToolRule():
                tools = settings.tools
                permit = tuple(dict.fromkeys((*tools.permit, rule.tool)))
                settings = settings.model_copy(update={"tools": tools.model_copy(update={"permit": permit})})
            case LimitRule():
                to = int(rule.to) if rule.limit == "tokens" else rule.to
                limits = settings.limits.model_copy(update={rule.limit: to})
                settings = settings.model_copy(update={"limits": limits})
    return settings


@frozen
class Question:
    """A question of a run to a person."""

    kind: QuestionKind
    rule: JSONObject
    """The fields of the narrowest rule that would let the run continue; empty for the agent's own question."""
    text: str
    """The agent's own words: data to display, without any effect."""

    @property
    def granted(self) -> Rule | None:
        """The rule, checked.

        Raises:
            PolicyRefused: As `read_rule`.
        """
        return read_rule(self.kind, self.rule)

    @property
    def reason(self) -> str:
        """The question in one line, without the agent's words."""
        rule = self.granted
        return "it asks a question" if rule is None else f"it asks to {rule}"

    @property
    def as_json(self) -> JSONObject:
        """The question as it is recorded."""
        return {"kind": self.kind, "rule": dict(self.rule), "text": self.text}


def limit_question(error: LimitReached, text: str) -> Question:
    """Return the question about a reached limit: the same amount again, which a resumed run counts from zero."""
    allowed = int(error.allowed) if error.limit == "tokens" else float(error.allowed)
    return Question("budget", {"limit": error.limit, "to": allowed}, text)


class QuestionWatch:
    """Turns the first refusal of a kind that the settings name into a question, and stops the work.

    Args:
        kinds: The kinds of refusals that are asked about.
        denied: Tools that the settings deny by name, which no answer can grant.
        may_permit: Whether the agent can start with this tool permitted. If not, as with a name that it does not know,
            the tool is not asked about, since a rule that is granted to an agent would end all its later runs.
    """

    def __init__(
        self,
        kinds: Sequence[QuestionKind],
        *,
        denied: Sequence[str] = (),
        may_permit: Callable[[str], bool] = lambda _tool: True,
    ) -> None:
        self.question: Question | None = None
        self._kinds = frozenset(kinds)
        self._denied = frozenset(denied)
        self._may_permit = may_permit
        self._scope: anyio.CancelScope | None = None
        self._words = ""
        self._asked: dict[str, str] = {}
        """The texts of the agent's questions, by the id of the call."""
        self._asked_last = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the events until the context is left; a question cancels the code within it."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                yield
            finally:
                self._scope = None

    def take(self, event: Event) -> None:
        """Process a recorded event."""
        if self._scope is None or self.question is not None or not self._kinds:
            return
        self._note_words(event)
        question = self._question_of(event)
        if question is not None:
            self._ask(question)

    def take_error(self, error: BaseException) -> None:
        """Process the error that ended the work."""
        if "budget" not in self._kinds or self.question is not None or not isinstance(error, LimitReached):
            return
        if error.limit in _BUDGETS:
            self._ask(limit_question(error, self._words))

    def _ask(self, question: Question) -> None:
        if question.kind not in self._kinds:
            return
        try:
            _ = question.granted
        except PolicyRefused:
            return  # the refusal is final, as without questions
        self.question = question
        if self._scope is not None:
            self._scope.cancel()

    def _question_of(self, event: Event) -> Question | None:
        match event:
            case EgressDecided(allowed=False, rule=rule) if rule == _NOT_LISTED:
                return Question("host", {"host": event.host, "port": event.port}, self._words)
            case PermissionDecided(allowed=False):
                return self._about_tool(event.tool, question_of_user(event.arguments))
            case AgentAnswered() if event.denied:
                return self._about_tool(event.denied[0], self._asked_last)
            case ToolReturned(is_error=False) if event.tool == ASK_PERSON and event.call_id in self._asked:
                return Question("question", {}, self._asked[event.call_id])
        return None

    def _about_tool(self, tool: str, text: str) -> Question | None:
        if tool == _ASK_USER:
            return Question("question", {}, text)
        if tool in self._denied or not self._may_permit(tool):
            return None
        return Question("tool", {"tool": tool}, self._words)

    def _note_words(self, event: Event) -> None:
        """Note the agent's last message and its questions."""
        if isinstance(event, ToolCalled):
            self._words = (event.reasoning or self._words)[:MAX_QUESTION_CHARS]
            if event.tool == _ASK_USER:
                self._asked_last = question_of_user(event.arguments)
            elif event.tool == ASK_PERSON and isinstance(event.origin, msgspec.UnsetType):
                self._asked[event.call_id] = str(event.arguments.get("question", ""))[:MAX_QUESTION_CHARS]
        elif isinstance(event, ModelReplied):
            texts = [str(block.get("text", "")) for block in event.content if block.get("type") == "text"]
            self._words = ("\n".join(texts) or self._words)[:MAX_QUESTION_CHARS]


def question_of_user(arguments: JSONObject) -> str:
    """Return the text of the questions in a call of claude's `AskUserQuestion`."""
    questions = arguments.get("questions")
    texts = [
        str(each.get("question", ""))
        for each in (questions if isinstance(questions, list) else ())
        if isinstance(each, dict)
    ]
    return "\n".join(texts)[:MAX_QUESTION_CHARS]


def continuation(answered: QuestionAnswered) -> str:
    """Return the prompt with which an agent continues after a person granted its request."""
    rule = read_rule(answered.kind, answered.rule)
    parts = []
    match rule:
        case HostRule():
            parts.append(
                f"You were refused a connection to {rule.egress}. A person has allowed it: you may now connect to "
                f"{rule.egress}. Continue the task from where you were stopped."
            )
        case ToolRule():
            parts.append(
                f"You were not permitted to use the tool {rule.tool}. A person has permitted it. Continue the task from "
                "where you were stopped."
            )
        case LimitRule():
            parts.append(
                "You were stopped because a limit was reached. A person has raised the limit. Continue the task from "
                "where you were stopped."
            )
        case None:
            parts.append("You asked a person a question. Continue the task from where you were stopped.")
    if answered.reply:
        parts.append(f"The person writes:\n\n{answered.reply}")
    return "\n\n".join(parts)
