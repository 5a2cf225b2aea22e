"""The restriction of untrusted files: they can only make changes that tighten the fence.

The author of the file counts as an attacker: the author of a cloned repository, or an agent in an earlier run. The table
therefore lists changes that certainly tighten the fence, and every other change counts as loosening.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.config.fields import all_fields
from ringfence.config.model import Settings
from ringfence.config.values import Loosening
from ringfence.frozen import frozen

Rule = Callable[[Any, Any], bool]
"""Decides whether the new value (second) is certainly at least as tight as the old one (first)."""


def _smaller(old: Any, new: Any) -> bool:
    def bound(value: Any) -> float:
        return math.inf if value is None else float(value)

    return bound(new) <= bound(old)


def _same(old: Any, new: Any) -> bool:
    return bool(old == new)


def _only(tight: Any) -> Rule:
    """Return a rule that accepts the old value and this one."""
    return lambda old, new: new in (old, tight)


def _more(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    return set(old) <= set(new)


def _fewer(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    return set(new) <= set(old)


def _fewer_or_any(old: tuple[Any, ...] | None, new: tuple[Any, ...] | None) -> bool:
    return old is None or (new is not None and set(new) <= set(old))


def _fewer_or_some(old: tuple[str, ...], new: tuple[str, ...]) -> bool:
    return not old or (bool(new) and set(new) <= set(old))


def _permissions(old: str | None, new: str | None) -> bool:
    freer = {"bypass": 0, "accept_edits": 1}
    # `plan` and `deny` each forbid something that the other permits.
    return (new or "bypass") == (old or "bypass") or freer.get(old or "bypass", 2) < freer.get(
        new or "bypass", 2
    )


def _mode(old: str, new: str) -> bool:
    # `clone` and `read_only` both keep the agent from the user's files, but `read_only` shows ignored files
    # (`.env`) that a clone does not contain, so neither is tighter than the other.
    return new == old or old == "bind"


@frozen
class Restriction:
    """The rule that decides which changes of a key tighten the fence."""

    rule: Rule
    allowed: str
    """The permitted changes as text, for the documentation and for errors."""


_SMALLER = Restriction(_smaller, "a smaller value")
_NOTHING = Restriction(_same, "only the present value")

TABLE: Mapping[str, Restriction] = {
    # No fence is certainly tighter than another, and an image is foreign code.
    "sandbox.backend": _NOTHING,
    "sandbox.image": _NOTHING,
    "sandbox.registries": Restriction(_fewer_or_any, "fewer registries"),
    "sandbox.digest_only": Restriction(_only(True), "`true`"),
    # Another engine may be another machine, and another runtime is another fence.
    "sandbox.engine": _NOTHING,
    "sandbox.runtime": _NOTHING,
    "sandbox.kubernetes": _NOTHING,
    "sandbox.network": Restriction(_only("none"), "`none`"),
    "sandbox.labels": _NOTHING,
    "sandbox.tmp_exec": Restriction(_only(False), "`false`"),
    "sandbox.fallback": Restriction(_only("none"), "`none`"),
    "sandbox.mode": Restriction(_mode, "`clone` or `read_only` instead of `bind`"),
    "sandbox.memory": _SMALLER,
    "sandbox.cpus": _SMALLER,
    "sandbox.pids": _SMALLER,
    "sandbox.disk": _SMALLER,
    "sandbox.tmp": _SMALLER,
    "sandbox.ttl": _SMALLER,
    # An environment (LD_PRELOAD, PATH, proxies) controls the programs that run, the check included.
    "sandbox.env": _NOTHING,
    "sandbox.mounts": Restriction(_fewer, "fewer mounts"),
    "sandbox.setup": _NOTHING,
    "sandbox.forward": Restriction(_fewer, "fewer forwards"),
    "sandbox.soft_limits": Restriction(_only(False), "`false`"),
    "sandbox.hide_toolchains": Restriction(_only(True), "`true`"),
    "sandbox.protect": Restriction(_more, "more patterns"),
    # Another agent uses another account.
    "run.runtime": _NOTHING,
    # `scripted:FILE` would let the file control the agent, and a more expensive model spends the user's money.
    "run.model": _NOTHING,
    "run.toolset": _NOTHING,
    # The agent treats this text as the user's instructions.
    "run.system_prompt": _NOTHING,
    "run.system_append": _NOTHING,
    # The agent would see a file of the host.
    "run.output_schema": _NOTHING,
    # An agent could weaken the check of its own work.
    "run.verify": _NOTHING,
    "run.require_verified": Restriction(_only(True), "`true`"),
    "pool.size": _SMALLER,
    "pool.max_age": _SMALLER,
    "limits.turns": _SMALLER,
    "limits.tool_calls": _SMALLER,
    "limits.tokens": _SMALLER,
    "limits.cost_usd": _SMALLER,
    "limits.wall_clock": _SMALLER,
    # Another label selects other containers.
    "engine.label": Restriction(_only(None), "`null`"),
    "engine.allow": Restriction(_fewer, "fewer acts"),
    "engine.socket": _NOTHING,
    "egress.allow": Restriction(_fewer, "fewer rules"),
    "egress.deny": Restriction(_more, "more hosts"),
    # A new swap could send a credential to any host.
    "egress.swap": Restriction(_fewer, "fewer swaps"),
    "egress.models": Restriction(_fewer_or_some, "fewer models"),
    "egress.provider_tools": Restriction(_fewer, "fewer tools"),
    # A price of zero would disable the cost limit.
    "prices": _NOTHING,
    # Python tools run on the host.
    "tools.python": _NOTHING,
    "tools.mcp": _NOTHING,
    "tools.allow": Restriction(_fewer_or_some, "fewer tools"),
    "tools.deny": Restriction(_more, "more tools"),
    "tools.permit": Restriction(_fewer, "fewer tools"),
    # A question ends the run, and interrupts a person.
    "ask.about": Restriction(_fewer, "fewer kinds"),
    "ask.deadline": _SMALLER,
    # These choose programs, arguments that override other settings, and hooks of the repository.
    "client.path": _NOTHING,
    "client.args": _NOTHING,
    "client.plugins": _NOTHING,
    "client.settings_sources": Restriction(_fewer, "fewer sources"),
    "client.permission_mode": Restriction(
        _permissions, "`accept_edits`, `plan` or `deny` instead of `bypass`"
    ),
    "client.idle_timeout": _SMALLER,
    "client.force": Restriction(_only(False), "`false`"),
    # A source can run a command on the host.
    "secrets": _NOTHING,
    # Labels select runs in lists.
    "labels": _NOTHING,
    "auth": Restriction(_only("keyless"), "`keyless`"),
    "unsafe": Restriction(_fewer, "fewer loosenings"),
}


@frozen
class Loosened:
    """A value that is not certainly as tight as the one that it replaces."""

    key: str
    path: tuple[str, ...]
    """The key's path, with the entry of a mapping with arbitrary keys: `sandbox`, `env`, `PATH`."""
    before: Any
    after: Any
    allowed: str

    def describe(self) -> str:
        """Describe the key, its value, its value without the file, and the values that an untrusted file may set."""
        field = all_fields()[self.key]
        is_new = self.before is None and len(self.path) > len(field.path)
        before = "not set" if is_new else _shorten(field.written(self.before))
        is_fixed = self.allowed == _NOTHING.allowed
        may = "not set or change it" if is_fixed else f"only set {self.allowed}"
        after = _shorten(field.written(self.after))
        return f"{self._name} = {after} (without this file: {before}; an untrusted file may {may})"

    def change(self) -> str:
        """Describe the change in a sentence, without the values of mappings, which may be confidential."""
        field = all_fields()[self.key]
        if len(self.path) > len(field.path):
            return f"{self._name} {'is removed' if self.after is None else 'has a value of its own'}"
        after, before = _shorten(field.written(self.after)), _shorten(field.written(self.before))
        return f"{self._name} is {after} instead of {before}"

    @property
    def _name(self) -> str:
        return ".".join(self.path)


def loosened(before: Settings, after: Settings, *, unset_mode: str = "clone") -> list[Loosened]:
    """Return every key for which `after` is not certainly as tight as `before`.

    Args:
        before: The settings without the file.
        after: The settings with the file.
        unset_mode: The workspace mode for which `sandbox.mode: null` stands.
    """
    found: list[Loosened] = []
    for key, field in all_fields().items():
        entry = TABLE[key]
        old, new = field.of(before), field.of(after)
        if key == "sandbox.mode":
            old, new = old or unset_mode, new or unset_mode
        if not entry.rule(old, new):
            for path, old_item, new_item in _differences(field.path, old, new):
                found.append(Loosened(key, path, old_item, new_item, entry.allowed))
    return found


def _shorten(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:197]}..."


def _differences(path: tuple[str, ...], old: Any, new: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if not isinstance(old, dict):
        yield path, old, new
        return
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield (*path, key), old.get(key), new.get(key)


@frozen
class Weakness:
    """A setting that weakens the fence wherever it is set."""

    path: KeyPath
    text: str
    """What it means, as a sentence."""
    loosening: Loosening | None = None
    """The name that a file with this setting must have in `unsafe`."""
    alternative: str = ""
    """What to do instead of naming it."""

    @property
    def key(self) -> str:
        """The dotted name of the key."""
        return ".".join(map(str, self.path[:2]))


def weaknesses(settings: Settings) -> Iterator[Weakness]:
    """Yield the settings that weaken the fence, for warnings, the journal, and the check of `unsafe`."""
    sandbox, egress = settings.sandbox, settings.egress
    if sandbox.backend == "host":
        yield Weakness(
            ("sandbox", "backend"),
            "commands run on this machine without a sandbox (backend 'host')",
            "host_backend",
            "or request it for each call with --sandbox host",
        )
    if sandbox.network != "none":
        network = f"the container network {sandbox.network!r}"
        text = f"the sandbox is attached to {network}, which egress rules do not restrict"
        yield Weakness(("sandbox", "network"), text)
    for index, rule in enumerate(egress.allow):
        if rule.preset == "open":
            yield Weakness(
                ("egress", "allow", index),
                "the sandbox can reach every public host",
                "egress",
                "name hosts instead, or request it for each call with --allow open",
            )
    if egress.provider_tools:
        text = f"the model's provider may run these tools: {', '.join(egress.provider_tools)}"
        yield Weakness(("egress", "provider_tools"), text)
    if sandbox.soft_limits:
        text = "limits that the kernel cannot enforce are only watched (soft limits)"
        yield Weakness(("sandbox", "soft_limits"), text)
    for mount in sandbox.mounts:
        if not mount.read_only:
            text = f"the host path {str(mount.source)!r} is writable in the sandbox"
            yield Weakness(("sandbox", "mounts"), text)
    if settings.auth == "inject":
        yield Weakness(
            ("auth",),
            "the models' credentials are in the sandbox (auth: inject)",
            "auth_inject",
            "or request it for each call with --auth inject",
        )
