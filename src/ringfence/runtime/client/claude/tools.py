"""Names of tools that a task may be given for `claude`, which passes over those that it does not know, in silence."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase

from ringfence.errors import UsageError
from ringfence.runtime.options import Options

_KNOWN = frozenset({
    "Agent", "Artifact", "AskUserQuestion", "Bash", "ClaudeDesign", "CronCreate", "CronDelete", "CronList", "Edit",
    "EndConversation", "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "LSP",
    "ListAgents", "ListMcpResourcesTool", "Monitor", "NotebookEdit", "OfferChromeSetup", "PowerShell", "Projects",
    "PushNotification", "Read", "ReadMcpResourceDirTool", "ReadMcpResourceTool", "ReadNotifications", "RemoteTrigger",
    "ReportFindings", "ScheduleWakeup", "SendFeedback", "SendMessage", "SendUserFile", "SendUserMessage", "SetGoal",
    "ShareOnboardingGuide", "ShowOnboardingRolePicker", "Skill", "StructuredOutput", "SubagentHandback", "TaskCreate",
    "TaskGet", "TaskList", "TaskStop", "TaskUpdate", "TodoWrite", "ToolSearch", "WaitForMcpServers", "WebFetch",
    "WebSearch", "Workflow", "Write", "propose_skills",
    # Other names of these.
    "Brief", "KillBash", "KillShell", "ListMcpResources", "ListPeers", "ProposeGoal", "ReadMcpResource",
    "ReadMcpResourceDir", "Task",
    # Of the older versions alone.
    "AgentOutput", "AgentOutputTool", "AutofixPr", "BashOutput", "BashOutputTool", "DesignSync", "Frame", "FrameRead",
    "REPL", "RunWorkflow", "SuggestBackgroundPR", "TaskOutput", "TeamCreate", "TeamDelete",
})  # fmt: skip
"""As the program itself lists them, with 2.1.197 and 2.1.329; which of them it has depends on much."""
_ALLOWED = "--allow-tool, tools.allow"
_DENIED = "--deny-tool, tools.deny"
_RULE = re.compile(r"([^\s,()]+)(?:\(.*?\)(?=[\s,]|$))?")
_SERVERS = frozenset({"--mcp-config", "--plugin-dir", "--plugin-url", "--settings"})
"""Arguments of its own that may bring servers."""


def names_in(tools: Iterable[str]) -> Iterator[str]:
    """The tools that rules are of; one text may hold several: `Read,Bash(git *)`."""
    for text in tools:
        yield from (found[1] for found in _RULE.finditer(text))


def check_tools(options: Options, *, knows_servers: bool) -> None:
    """See that the tools that are allowed or denied are some that claude can have; `force` takes any.

    Args:
        options: The task's.
        knows_servers: Whether all MCP servers are in them.

    Raises:
        UsageError: One is not.
    """
    if options.force:
        return
    for name in names_in(options.tools_allowed):
        if "*" in name and not name.startswith("mcp__"):
            raise UsageError(f"the allowed tool {name!r} ({_ALLOWED}) would be none; name each tool")
    knows_servers = knows_servers and not _brings_servers(options)
    for tools, place in ((options.tools_allowed, _ALLOWED), (options.tools_denied, _DENIED)):
        for name in names_in(tools):
            _check_name(name, options if knows_servers else None, place)


def _check_name(name: str, servers_of: Options | None, place: str) -> None:
    if not name.startswith("mcp__"):
        if not any(fnmatchcase(each, name) for each in _KNOWN):
            raise UsageError(f"claude has no tool {name!r} ({place}); {_near(name)}")
    elif servers_of is not None:
        known = sorted(server.name for server in servers_of.mcp_servers)
        if not any(_is_of(server, name) for server in known):
            told = f"those there are: {', '.join(known)}" if known else "there is none; see tools.mcp"
            raise UsageError(f"the tool {name!r} ({place}) is of no MCP server of this task: {told}")


def _brings_servers(options: Options) -> bool:
    """Whether there may be servers that nobody knows here."""
    given = {word.partition("=")[0] for word in options.cli_args}
    return bool(options.plugins or options.settings_sources or given & _SERVERS)


def _is_of(server: str, name: str) -> bool:
    begin = f"mcp__{server}"
    return (
        name == begin or name.startswith(f"{begin}__") or ("*" in name and fnmatchcase(f"{begin}__x", name))
    )


def _near(name: str) -> str:
    lower = {each.lower(): each for each in _KNOWN}
    near = [lower[each] for each in get_close_matches(name.lower(), lower, n=1)]
    like = f"did you mean {near[0]!r}?" if near else "it has Bash, Edit, Read and others."
    return f"{like} With --force a name counts that this release does not know"
