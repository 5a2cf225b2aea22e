"""Other programs that think: the real `claude` and `codex` inside the fence, and which options each has."""

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from tests.promises.needs import need_client
from tests.promises.product import Ended, Product, poll, says

PROGRAMS = {"claude-cli": "claude", "claude-sdk": "claude", "codex-cli": "codex"}
SECRET = "s3cr3t-of-the-caller"


def options(runtime: str) -> tuple[str, ...]:
    """Options that choose a runtime."""
    return ("--runtime", runtime, "--cli-path", str(need_client(PROGRAMS[runtime])))


@pytest.fixture(scope="module", params=PROGRAMS)
def worked(request: pytest.FixtureRequest, make_product: Callable[[], Product]) -> tuple[Product, Ended, str]:
    """A product whose one run was done by a real client."""
    runtime = str(request.param)
    words = options(runtime)
    product = make_product()
    product.write(".claude/settings.json", json.dumps({"hooks": hooks(product)}))
    product.environment["SHOP_API_TOKEN"] = SECRET
    model = product.script(
        says("I write.", "echo by-client > made.txt; env; cat /proc/*/environ; true"), says("It is made.")
    )
    return product, product.run(model, *words, "--verify", "grep -q by-client made.txt"), runtime


def first_run(product: Product) -> str:
    """The run that did the work, though another test may have continued its session since."""
    return min(product.runs())


def hooks(product: Product) -> dict[str, Any]:
    """Hooks that a hostile repository would have run."""
    command = {"type": "command", "command": f"touch {product.project}/hooked"}
    return {name: [{"hooks": [command]}] for name in ("SessionStart", "UserPromptSubmit", "Stop")}


def test_a_task(worked: tuple[Product, Ended, str]) -> None:
    """A client works on a task as any agent does: a check decides, and the work is in the workspace."""
    product, ended, runtime = worked
    assert ended.ends_as("succeeded"), ended
    assert (product.project / "made.txt").read_text() == "by-client\n"
    assert product.recorded("job.created", first_run(product))[0]["runtime"] == runtime


def test_record(worked: tuple[Product, Ended, str]) -> None:
    """The record has what was started, each exchange with the model, calls with their results, and how it ended."""
    product, _, runtime = worked
    run = first_run(product)
    (started,) = product.recorded("client.started", run)
    assert started["client"] == PROGRAMS[runtime]
    assert started["version"]
    assert not any("Do it." in word for word in started["argv"])
    for event in ("model.exchanged", "tool.called", "tool.returned", "client.ended", "agent.answered"):
        assert product.recorded(event, run), event
    product.does("runs verify", run)


def test_what_is_used(worked: tuple[Product, Ended, str]) -> None:
    """Tokens and cost are what the gateway counted, whatever the client says."""
    product, _, _ = worked
    run = first_run(product)
    exchanged = sum(sum(each["usage"].values()) for each in product.recorded("model.exchanged", run))
    assert sum(product.ended(run)["usage"].values()) == exchanged > 0
    assert product.ended(run)["cost_usd"] > 0


def test_nothing_of_the_caller_is_inside(worked: tuple[Product, Ended, str]) -> None:
    """Neither the caller's environment nor a key is inside."""
    product, _, _ = worked
    text = "".join(json.dumps(each) for each in product.recorded("tool.returned", first_run(product)))
    assert "PATH=" in text
    assert SECRET not in text


def test_settings_of_the_workspace_do_not_count(worked: tuple[Product, Ended, str]) -> None:
    """Hooks that the workspace names are not run."""
    assert not (worked[0].project / "hooked").exists()


def test_changes(worked: tuple[Product, Ended, str]) -> None:
    """`diff` shows what a client changed."""
    assert "made.txt" in worked[0].does("diff", first_run(worked[0]), "--stat").out


def test_a_session_goes_on(worked: tuple[Product, Ended, str]) -> None:
    """`--continue` goes on with a client's session, with the client that it was of."""
    product, _, runtime = worked
    model = product.script(says("Nothing more."), name="more")
    client = ("--cli-path", options(runtime)[3])
    assert product.run(model, *client, "--continue", prompt="And now?").ends_as("unverified")
    assert product.recorded("session.resumed")
    assert product.recorded("job.created")[0]["runtime"] == runtime


@pytest.mark.parametrize("runtime", PROGRAMS)
def test_a_wrong_credential(product: Product, runtime: str) -> None:
    """A credential that the model's API refuses ends a client's run with 77."""
    model = product.script({"error": {"status": 401, "times": 50}, "text": "never"})
    assert product.run(model, *options(runtime)).ends_as("authentication")


@pytest.mark.parametrize("runtime", PROGRAMS)
def test_time(product: Product, runtime: str) -> None:
    """A client that takes longer than `--timeout` is ended with 124, and its record is sealed."""
    model = product.script({"stall": {"seconds": 600}, "text": "late"})
    assert product.run(model, *options(runtime), "--timeout", "3s").ends_as("timed out")
    assert product.record()[-1]["event"] == "journal.sealed"


@pytest.mark.parametrize("runtime", PROGRAMS)
def test_interruption(product: Product, runtime: str) -> None:
    """Ctrl-C ends a client's run with 130, and nothing of it is left."""
    model = product.script(says("", "echo x > made; sleep 600"), says("done"))
    with product.started("run", "--model", model, *options(runtime), "Do it.") as process:
        poll(lambda: (product.project / "made").exists())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert product.ended()["state"] == "cancelled"


def test_tokens(product: Product) -> None:
    """A client that asks beyond the run's tokens is ended with the code of a limit."""
    turns = [says("", "true") for _ in range(6)]
    ended = product.run(product.script(*turns, says("x")), *options("claude-cli"), "--max-tokens", "20000")
    assert ended.ends_as("limit")


# What needs no client.


REFUSED = {
    "toolset of a client": ("claude-cli", ("--toolset", "operator"), "toolset"),
    "permissions of our own loop": ("api", ("--permission-mode", "plan"), "permission"),
    "plugin of codex": ("codex-cli", ("--plugin", "/tmp"), "plugin"),
    "tools of codex": ("codex-cli", ("--deny-tool", "x"), "tool"),
    "program of our own loop": ("api", ("--cli-path", "/bin/true"), "cli-path"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_a_runtime_does_not_have(shared: Product, case: str) -> None:
    """An option without effect on a runtime is a usage error of one line that names it; nothing is run."""
    runtime, words, value = REFUSED[case]
    shared.run(shared.script(says("x")), "--runtime", runtime, *words).fails_as("usage", value)


def test_a_client_that_is_not_there(product: Product) -> None:
    """A client that is not there is an error that names it, before an agent is set to work."""
    ended = product.run(product.script(says("x")), "--runtime", "claude-cli", "--cli-path", "/no/claude")
    assert ended.code not in {0, 9}
    assert "/no/claude" in ended.err + ended.out


@pytest.mark.parametrize("command", ["claude", "codex"])
def test_a_client_needs_a_terminal(shared: Product, command: str) -> None:
    """Without a terminal a client is not started on it: one line says what to use instead."""
    ended = shared(command)
    assert ended.code != 0
    (line,) = ended.err.strip().splitlines()
    assert "run" in line
