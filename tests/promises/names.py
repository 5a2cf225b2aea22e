"""What the product calls things, in every version that the suite runs against.

Tests use the names on the left. Whoever renames something adds its new spelling here, before the older ones, in the
same commit; a test changes only where a promise changes. Where there is more than one spelling, the product's own help
decides which of them it has (`spelling.py`). What is in no table is spelled as the tests spell it.
"""

COMMANDS: dict[str, tuple[str, ...]] = {
    "runs ls": ("runs ls", "audit ls"),
    "runs show": ("runs logs", "audit show"),
    "runs verify": ("runs verify", "audit verify"),
    "runs export": ("runs export", "audit export"),
    "runs follow": ("runs logs --follow", "audit follow"),
    "trust": ("config trust", "trust"),
    "policy show": ("config policy show", "policy show"),
    "policy explain": ("config policy explain", "policy explain"),
    "policy test": ("config policy test", "policy test"),
    "secrets ls": ("config secrets ls", "secret ls"),
    "secrets test": ("config secrets test", "secret test"),
    "loop ls": ("loop ls", "loop list"),
    "loop watch": ("loop logs --follow", "loop watch"),
    "loop clean": ("loop rm", "loop clean"),
    "pool status": ("sandbox pool status", "pool status"),
    "pool stop": ("sandbox pool stop", "pool stop"),
    "sandbox inspect": ("sandbox show", "sandbox inspect"),
    "worker": ("fleet worker", "worker"),
    "agents ls": ("fleet agents ls", "agent ls"),
    "agents show": ("fleet agents show", "agent show"),
    "agents enable": ("fleet agents enable", "agent enable"),
    "agents disable": ("fleet agents disable", "agent disable"),
    "schedules ls": ("fleet schedules ls", "schedule ls"),
    "schedules next": ("fleet schedules next", "schedule next"),
    "schedules pause": ("fleet schedules pause", "schedule pause"),
    "schedules resume": ("fleet schedules resume", "schedule resume"),
}
"""Words of a command; the newest first."""

OPTIONS: dict[str, tuple[str, ...]] = {}
"""Long options, such as `--max-turns`; the newest first."""

SETTINGS: dict[str, tuple[str, ...]] = {}
"""Keys of `ringfence.yaml`, such as `sandbox.soft_limits`; the newest first."""

KEYS: dict[str, str] = {"supervisor_pid": "holder_pid"}
"""Keys in the JSON that the product writes: its spelling, and that of the tests."""

STATES: dict[str, str] = {}
"""Values of `state` in that JSON: the product's spelling, and that of the tests."""

EVENTS: dict[str, str] = {}
"""Names of events in records: the product's spelling, and that of the tests."""

FILES: dict[str, tuple[str, ...]] = {
    "run": ("runs/{run}",),
    "journal": ("runs/{run}/journal.jsonl",),
    "session": ("runs/{run}/{run}.json",),
    "patch": ("runs/{run}/work.patch",),
    "work": ("runs/{run}/work.json",),
    "heads": ("heads",),
    "public key": ("keys/journal-ed25519.pub",),
    "daemon socket": ("fleet/daemon.sock",),
    "daemon log": ("fleet/daemon.log",),
    "loop": ("loops/{loop}",),
}
"""Files in the state directory; the one that is there counts."""

IMPORTS: dict[str, tuple[str, ...]] = {
    "Sandbox": ("ringfence",),
    "SandboxSpec": ("ringfence",),
    "Mount": ("ringfence", "ringfence.sandbox"),
    "open_sandbox": ("ringfence",),
    "tool": ("ringfence.tool",),
    "run_agent": ("ringfence",),
    "run_agent_sync": ("ringfence",),
    "Limits": ("ringfence", "ringfence.runtime"),
    "ScriptedModelServer": ("ringfence.testing.scripted_model",),
    "load_script": ("ringfence.testing.scripted_model",),
}
"""Modules from which a program takes a public name; the newest first. Errors are in `ringfence.errors`."""

EXITS: dict[str, frozenset[int]] = {
    "succeeded": frozenset({0}),
    "unverified": frozenset({0, 9}),  # 0 until version 0.2
    "failed": frozenset({1}),
    "usage": frozenset({2}),
    "check failed": frozenset({3}),
    "refused": frozenset({4}),
    "limit": frozenset({5}),
    "blocked": frozenset({6}),
    "infrastructure": frozenset({75}),
    "authentication": frozenset({77}),
    "configuration": frozenset({78}),
    "timed out": frozenset({124}),
    "sandbox start": frozenset({125}),
    "cancelled": frozenset({130}),
}
"""Exit codes that mean something, by what they mean."""
