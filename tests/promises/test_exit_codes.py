"""Each way to end has an exit code of its own (docs/reference/exit-codes.md), which the record has, too."""

import pytest
from tests.promises.product import Product, Turn, says

OVERLOADED: Turn = {"error": {"status": 529, "times": 20, "retry_after": 0}, "text": "never"}

RUNS: dict[str, tuple[str, list[Turn], tuple[str, ...]]] = {
    "succeeded": ("succeeded", [says("done")], ("--verify", "true")),
    "check failed": ("check_red", [says("done")], ("--verify", "exit 9")),
    "declined": ("failed", [{"text": "no", "stop_reason": "refusal"}], ()),
    "not understood": ("failed", [{"error": {"status": 400}}, says("done")], ()),
    "turns": ("limit", [says("", "true"), says("done")], ("--max-turns", "1")),
    "tool calls": ("limit", [says("", "true", "true"), says("done")], ("--max-tool-calls", "1")),
    "tokens": ("limit", [says("", "true"), says("done")], ("--max-tokens", "10")),
    "cost": ("limit", [says("", "true"), says("done")], ("--max-cost-usd", "0.000001")),
    "overloaded": ("infrastructure", [OVERLOADED], ()),
    "wrong credential": ("authentication", [{"error": {"status": 401}}, says("done")], ()),
    "forbidden": ("authentication", [{"error": {"status": 403, "type": "permission_error"}}, says("x")], ()),
    "time": ("timed_out", [says("", "sleep 600"), says("done")], ("--timeout", "1s")),
    "model is slow": ("timed_out", [{"stall": {"seconds": 600}, "text": "late"}], ("--timeout", "1s")),
}
CODES = {
    "succeeded": "succeeded",
    "check_red": "check failed",
    "failed": "failed",
    "limit": "limit",
    "infrastructure": "infrastructure",
    "authentication": "authentication",
    "timed_out": "timed out",
    "refused": "refused",
    "sandbox_start": "sandbox start",
}


@pytest.mark.parametrize("case", RUNS)
def test_ends_of_a_run(product: Product, case: str) -> None:
    """A run ends with the code of its state, as its record and list say; a limit names the option that raises it."""
    state, turns, options = RUNS[case]
    ended = product.run(product.script(*turns), *options)
    assert ended.ends_as(CODES[state])
    assert state not in {"limit", "timed_out"} or options[0] in ended.err
    end = product.ended()
    assert (end["state"], end["exit_code"]) == (state, ended.code)
    (row,) = product.does("runs ls", "--json").json
    assert (row["state"], row["exit_code"], row["is_sealed"]) == (state, ended.code, True)


def test_no_credential(product: Product) -> None:
    """A model without a credential ends with 77 and one line, and no run is made."""
    product.run("claude-sonnet-5-5").fails_as("authentication", "ANTHROPIC_API_KEY")
    assert product("runs ls", "--json").json == []


def test_refused_workspace_is_recorded(product: Product) -> None:
    """A workspace that policy refuses ends with 4, and the refusal has a record."""
    assert product("exec", "-C", "/", "--", "true").ends_as("refused")
    assert product.ended()["state"] == "refused"


def test_state_directory_that_cannot_be_had(product: Product) -> None:
    """A state directory that cannot be made ends with 75 and a line that names it."""
    product("exec", "--", "true", RINGFENCE_STATE_DIR="/proc/none").fails_as("infrastructure", "/proc/none")


USAGE = {
    "unknown command": (("frobnicate",), "frobnicate"),
    "unknown subcommand": (("sandbox", "frobnicate"), "frobnicate"),
    "unknown option": (("run", "--frobnicate", "x"), "--frobnicate"),
    "unknown option of exec": (("exec", "--podman", "--", "true"), "--podman"),
    "unknown option with a value": (("exec", "--network", "bridge", "--", "true"), "--network"),
    "no task": (("run",), "PROMPT"),
    "task twice": (("run", "a", "--file", "b"), "--file"),
    "task file that is not there": (("run", "--file", "/no/task"), "/no/task"),
    "script that is not there": (("run", "--model", "scripted:/no/script", "x"), "/no/script"),
    "schema that is not there": (("run", "--output-schema", "/no/schema", "x"), "/no/schema"),
    "program that is not there": (
        ("run", "--cli-path", "/no/claude", "--runtime", "claude", "x"),
        "/no/claude",
    ),
    "plugin that is not there": (("run", "--plugin", "/no/plugin", "--runtime", "claude", "x"), "/no/plugin"),
    "stories that are not there": (("loop start", "--prd", "/no/prd.json"), "/no/prd.json"),
    "stories to check that are not there": (("loop check", "/no/prd.json"), "/no/prd.json"),
    "fleet that is not there": (("fleet validate", "--file", "/no/fleet.yaml"), "/no/fleet.yaml"),
    "journal that is not there": (("runs verify", "/no/journal.jsonl"), "/no/journal.jsonl"),
    "key that is not there": (("runs verify", "--all", "--key", "/no/key.pem"), "/no/key.pem"),
    "expectations that are not there": (("config policy test", "/no/policy.yaml"), "/no/policy.yaml"),
    "size": (("exec", "--memory", "lots", "--", "true"), "lots"),
    "number": (("exec", "--cpus", "many", "--", "true"), "many"),
    "number that is too small": (("run", "--max-turns", "0", "x"), "--max-turns"),
    "duration": (("exec", "--timeout", "soon", "--", "true"), "soon"),
    "choice": (("exec", "--mode", "sideways", "--", "true"), "sideways"),
    "sandbox": (("exec", "--sandbox", "chroot", "--", "true"), "chroot"),
    "runtime": (("run", "--runtime", "telepathy", "x"), "telepathy"),
    "variable": (("exec", "--env", "NOVALUE", "--", "true"), "NOVALUE"),
    "workspace that is not there": (("exec", "-C", "/no/where", "--", "true"), "/no/where"),
    "forward": (("exec", "--forward", "nowhere", "--", "true"), "nowhere"),
    "host": (("exec", "--allow", "http://a/b", "--", "true"), "http://a/b"),
    "run": (("diff", "ffffffff"), "ffffffff"),
    "sandbox that is not there": (("sandbox exec", "gone", "--", "true"), "gone"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage(shared: Product, case: str) -> None:
    """A command line that makes no sense ends with 2 and one line that holds what is wrong."""
    (command, *words), value = USAGE[case]
    shared(command, *words).fails_as("usage", value)
