"""Events of a run, named in the past tense. The journal stores them and the terminal shows them.

Every event is a frozen struct with a tag such as `tool.called`. The union `AnyEvent` decodes every one of them.
"""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from ringfence.events.agent_cli import (
    AgentAnswered,
    ClientEnded,
    ClientStarted,
    HookAnswered,
    PermissionDecided,
    SessionImported,
    SessionKept,
    SessionLost,
    SessionResumed,
    TranscriptDamaged,
    TranscriptFile,
    TranscriptNoted,
)
from ringfence.events.egress import (
    ConnectionFailed,
    EgressChanged,
    EgressClosed,
    EgressDecided,
    EgressIntercepted,
    ForwardClosed,
    ForwardOpened,
    ForwardRefused,
    PlaceholderStrayed,
    PortPublished,
    PortWithdrawn,
)
from ringfence.events.event import Emit, Event, JSONObject, Origin, Usage
from ringfence.events.journal import (
    FilesRecorded,
    JournalOpened,
    JournalRepaired,
    JournalSealed,
    SecretExpiring,
    SecretLeased,
    SecretRevoked,
)
from ringfence.events.loop import (
    ChecksCompleted,
    CodeCommitted,
    LoopCancelled,
    LoopCompleted,
    LoopMerged,
    LoopProposed,
    LoopStarted,
    StoryBlocked,
    StoryDispatched,
    StoryFailed,
    StoryPassed,
    StoryRejected,
    StoryRetried,
    StorySkipped,
    TestsWritten,
)
from ringfence.events.model import ModelAsked, ModelExchanged, ModelReplied, ModelRetried

__all__ = [
    "AgentAnswered",
    "ChecksCompleted",
    "ClientEnded",
    "ClientStarted",
    "CodeCommitted",
    "ConnectionFailed",
    "EgressChanged",
    "EgressClosed",
    "EgressDecided",
    "EgressIntercepted",
    "Emit",
    "Event",
    "FilesRecorded",
    "ForwardClosed",
    "ForwardOpened",
    "ForwardRefused",
    "HookAnswered",
    "JSONObject",
    "JournalOpened",
    "JournalRepaired",
    "JournalSealed",
    "LoopCancelled",
    "LoopCompleted",
    "LoopMerged",
    "LoopProposed",
    "LoopStarted",
    "ModelAsked",
    "ModelExchanged",
    "ModelReplied",
    "ModelRetried",
    "Origin",
    "OutputStreamed",
    "PermissionDecided",
    "PlaceholderStrayed",
    "PortPublished",
    "PortWithdrawn",
    "SecretExpiring",
    "SecretLeased",
    "SecretRevoked",
    "SessionImported",
    "SessionKept",
    "SessionLost",
    "SessionResumed",
    "StoryBlocked",
    "StoryDispatched",
    "StoryFailed",
    "StoryPassed",
    "StoryRejected",
    "StoryRetried",
    "StorySkipped",
    "TestsWritten",
    "TranscriptDamaged",
    "TranscriptFile",
    "TranscriptNoted",
    "Usage",
]
"""The public names of the other modules; the events that this module defines are public, too."""


class JobCreated(Event, frozen=True, kw_only=True, tag="job.created"):
    """A run was requested. `configuration` is its effective configuration, labels included, without secrets."""

    job_id: str
    session_id: str
    prompt: str
    model: str
    runtime: str
    toolset: str
    workspace: str
    version: str
    configuration: JSONObject = msgspec.field(default_factory=dict)
    continues: str | None = None


class JobStarted(Event, frozen=True, kw_only=True, tag="job.started"):
    """The agent was started."""


class SandboxCreated(Event, frozen=True, kw_only=True, tag="sandbox.created"):
    """A sandbox was opened. `enforced` says how each limit is enforced: `kernel`, `soft` or `none`."""

    sandbox_id: str
    backend: str
    purpose: str
    """`agent`, `verify`, `export`, `exec`, `shell`, `standing`."""
    chosen_because: str
    image: str | None
    policy: JSONObject
    enforced: dict[str, str]
    started_in_ms: float
    engine: str | None = None
    """Product and version of the container engine, if there is one."""
    engine_ms: dict[str, float] = msgspec.field(default_factory=dict)
    """The time that the engine took for each step: `connect`, `create`, `attach`, `start`."""


class SandboxDestroyed(Event, frozen=True, kw_only=True, tag="sandbox.destroyed"):
    """A sandbox was closed, or had died."""

    sandbox_id: str
    reason: str


class CommandEnded(Event, frozen=True, kw_only=True, tag="command.ended"):
    """A command of Ringfence itself, not of a tool, ended in a sandbox: set-up, verification, `exec`."""

    sandbox_id: str
    argv: list[str]
    exit_code: int
    ended_by: str
    duration_ms: float
    stdout: str
    stderr: str


class EngineCalled(Event, frozen=True, kw_only=True, tag="engine.called"):
    """A process in the sandbox sent a request to the container engine. It is recorded before it is forwarded."""

    sandbox_id: str
    call: int
    """Counted from 1 for each sandbox."""
    method: str
    path: str
    allowed: bool
    action: str
    """The kind of the request: `list`, `inspect`, `restart`, ...; empty if it is of no known kind."""
    reason: str
    """The reason for a refusal."""
    container: str | None = None
    command: list[str] | None = None
    """The command of a forwarded `exec`, cut after 8192 characters in total."""
    user: str | None = None
    """The user that the command was to run as, if it is not the container's own."""


class EngineAnswered(Event, frozen=True, kw_only=True, tag="engine.answered"):
    """The container engine's response was forwarded."""

    sandbox_id: str
    call: int
    status: int
    answer_bytes: int
    ended_by: str
    """`closed`; `limit`, if it was cut off; `inside` or `engine`, if that side closed the connection early."""
    duration_ms: float


class PolicyLoosened(Event, frozen=True, kw_only=True, tag="policy.loosened"):
    """The configuration loosens a default of the fence, as requested by name."""

    what: str
    """A sentence that describes the loosened default."""
    by: str
    """The origin of the setting: an option, a variable, or a file with its line."""


class CheckpointCreated(Event, frozen=True, kw_only=True, tag="checkpoint.created"):
    """The state of the workspace was saved. `when` is `before`, `after` or `checked` (after a check that changed it)."""

    checkpoint: str
    when: str
    files: int
    duration_ms: float
    tree: str = ""
    """Git's id of its tree; empty in records of earlier versions."""


class MessageSent(Event, frozen=True, kw_only=True, tag="message.sent"):
    """A user message (prompt or tool results) was added to the conversation."""

    content: Any


class TextStreamed(Event, frozen=True, kw_only=True, tag="text.streamed"):
    """A piece of the model's text, as it is received."""

    journaled: ClassVar[bool] = False
    text: str


class ThinkingStreamed(Event, frozen=True, kw_only=True, tag="thinking.streamed"):
    """A piece of the model's thinking, as it is received."""

    journaled: ClassVar[bool] = False
    text: str


class OutputStreamed(Event, frozen=True, kw_only=True, tag="output.streamed"):
    """A piece of a command's output, as it is written. The command is a call of the tool `shell`, or the check.

    `call_id` is empty for the check. If a command writes more than can be shown, only the beginning is streamed; the
    event of the command's end has the complete result.
    """

    journaled: ClassVar[bool] = False
    call_id: str
    text: str
    is_stderr: bool = False


class ConversationCompacted(Event, frozen=True, kw_only=True, tag="conversation.compacted"):
    """Old tool results were removed from the conversation because the context window was full."""

    dropped_results: int
    reason: str


class ToolCalled(Event, frozen=True, kw_only=True, tag="tool.called"):
    """The model called a tool. The call is recorded before the tool runs."""

    call_id: str
    tool: str
    arguments: JSONObject
    reasoning: str | None = None


class ToolReturned(Event, frozen=True, kw_only=True, tag="tool.returned"):
    """A tool call ended. `content` is the result that the model receives."""

    call_id: str
    tool: str
    is_error: bool
    content: str
    duration_ms: float


class VerificationStarted(Event, frozen=True, kw_only=True, tag="verification.started"):
    """The check was started in a new sandbox."""

    command: str


class VerificationEnded(Event, frozen=True, kw_only=True, tag="verification.ended"):
    """The check ended; `passed` decides the outcome of the run."""

    command: str
    passed: bool
    exit_code: int
    ended_by: str
    output: str
    duration_ms: float
    runner: str | None = None
    """The test runner whose report was read; None if only the exit code of the command counted."""
    tests: dict[str, int] = msgspec.field(default_factory=dict)
    """The number of tests with each outcome (`passed`, `failed`, `error`, `skipped`) in the runner's report."""
    canary: bool = False
    """Whether a test that must fail was run instead of the tests, and failed."""
    caveats: list[str] = msgspec.field(default_factory=list)
    """Faults that the check cannot exclude."""


class WorkExported(Event, frozen=True, kw_only=True, tag="work.exported"):
    """The agent's work was exported. `runs_on_your_machine` names files that the host would run or trust."""

    files_changed: int
    insertions: int
    deletions: int
    patch: str | None
    refs: list[str]
    runs_on_your_machine: list[str]
    notes: list[str] = msgspec.field(default_factory=list)
    """Parts of the work that were not exported, and the reasons."""
    files_changed_by_commits: int = 0
    """The number of further files that only commits change, or that commits change differently from the workspace."""


class JobEnded(Event, frozen=True, kw_only=True, tag="job.ended"):
    """The run reached its terminal state."""

    state: str
    exit_code: int
    reason: str
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    cost_usd: float | None = None
    duration_s: float = 0.0
    question: JSONObject | None = None
    """What the run asks a person, in the state `blocked`: `kind`, `rule` (made from fields of this record), and `text`
    (the agent's own words)."""


class QuestionAnswered(Event, frozen=True, kw_only=True, tag="question.answered"):
    """A person answered the question of an earlier run, which this run resumes. It is recorded before the run begins."""

    question: str
    """The id of the question: that of its entry in the inbox, or of the run that asked."""
    run: str
    """The run that asked."""
    kind: str
    """`host`, `tool`, `budget`, `question`."""
    rule: JSONObject
    """The rule that was granted; empty for a question of the agent's own."""
    answer: str
    """`allow`."""
    scope: str
    """`run`: for this run, or the job that it belongs to; `agent`: for all later jobs of the agent, too."""
    by: str
    """The name of the person."""
    at: str
    """The time of the answer."""
    reply: str = ""
    """The person's message to the agent."""


if TYPE_CHECKING:
    AnyEvent = Event
else:
    AnyEvent = reduce(or_, Event.__subclasses__())
"""The union of all events. Events of this package have no subclasses."""
