"""`run`: an agent of our own works on a task, in a sandbox, with a scripted model."""

import json
import signal
from typing import Any

import pytest
from tests.promises import names
from tests.promises.needs import Fence
from tests.promises.product import Event, Product, Turn, poll, read_until, says

FIX = says("I write it.", "echo two > app.py; echo new > new.txt")


def calls(*pairs: tuple[str, dict[str, Any]]) -> Turn:
    """A turn that calls tools."""
    return {"tools": [{"name": name, "input": given} for name, given in pairs]}


def test_check_that_passes(product: Product, fence: Fence) -> None:
    """A run whose check passes has succeeded: exit code 0, and the work is in the workspace."""
    model = product.script(FIX, says("done"))
    ended = product.run(model, *fence, "--verify", "grep -q two app.py && test -e new.txt")
    assert ended.ends_as("succeeded")
    assert product.ended()["state"] == "succeeded"
    assert (product.project / "app.py").read_text() == "two\n"


def test_check_that_fails(product: Product, fence: Fence) -> None:
    """A run whose check fails ends with 3, whatever the agent says; its work stays."""
    ended = product.run(product.script(FIX, says("All is well.")), *fence, "--verify", "grep -q three app.py")
    assert ended.ends_as("check failed")
    assert product.ended()["exit_code"] == ended.code
    assert (product.project / "new.txt").exists()


def test_check_is_in_a_sandbox_of_its_own(product: Product, fence: Fence) -> None:
    """The check finds neither processes nor files outside of the workspace that the agent left."""
    left = "echo x > /tmp/left; echo x > ~/left; setsid sleep 4244 > /dev/null 2>&1 & echo x > here"
    check = (
        "test -e here && test ! -e /tmp/left && test ! -e ~/left && ! grep -sq 424[4] /proc/[0-9]*/cmdline"
    )
    ended = product.run(product.script(says("", left), says("done")), *fence, "--verify", check)
    assert ended.ends_as("succeeded"), ended
    assert [made["purpose"] for made in product.recorded("sandbox.created")] == ["agent", "verify"]


def test_no_check(product: Product) -> None:
    """Without a check a run ends unverified, whatever the agent says, and prints what to do about it."""
    ended = product.run(product.script(says("It certainly works.")))
    assert ended.ends_as("unverified")
    assert all(
        word in ended.err for word in ("exit code 9", "--verify CMD", "--no-verify", "--require-verified")
    )
    assert product.ended()["state"] == "unverified"


def test_a_check_is_required(product: Product) -> None:
    """With `--require-verified` a run without a check is refused before the agent starts."""
    model = product.script(says("done", "touch made"))
    product.run(model, "--require-verified").fails_as("usage", "--verify")
    assert not (product.project / "made").exists()


def test_what_the_check_writes_is_undone_with_the_run(product: Product) -> None:
    """What the check writes to the workspace is the run's: `diff` shows it, and `undo` takes it back."""
    product.run(product.script(FIX, says("done")), "--verify", "echo c > by-the-check")
    assert "by-the-check" in product.does("diff", "last", "--stat").out
    product.does("undo", "last")
    assert not (product.project / "by-the-check").exists()


@pytest.fixture(scope="module")
def told(shared: Product) -> list[Event]:
    """What a run that called each tool printed for programs."""
    model = shared.script(
        calls(("write_file", {"path": "made/b.txt", "content": "one\ntwo\n"})),
        calls(("read_file", {"path": "made/b.txt"}), ("list_files", {"path": "made"})),
        calls(("search", {"regex": "tw.", "path": "made"})),
        calls(("edit_file", {"path": "made/b.txt", "old_text": "two", "new_text": "2"})),
        calls(("edit_file", {"path": "made/b.txt", "old_text": "absent", "new_text": "2"})),
        calls(("no_such_tool", {})),
        calls(("read_file", {"pfad": "made/b.txt"})),
        calls(("shell", {"command": "echo out; echo err >&2; exit 3", "reasoning": "to see how it fails"})),
        says("All tools were called."),
        name="tools",
    )
    ended = shared.run(model, "--json", "--sandbox", "bubblewrap")
    assert ended.ends_as("unverified")
    return ended.events


def returned(told: list[Event], name: str, number: int = 0) -> Event:
    """What the call of a tool gave back."""
    return [event for event in told if event["event"] == "tool.returned" and event["tool"] == name][number]


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        pytest.param("write_file", "made/b.txt", id="write"),
        pytest.param("read_file", "one", id="read"),
        pytest.param("list_files", "b.txt", id="list"),
        pytest.param("search", "2:two", id="search"),
        pytest.param("edit_file", "b.txt", id="edit"),
    ],
)
def test_tools_of_files(told: list[Event], tool: str, result: str) -> None:
    """An agent writes, reads, lists, searches and edits files of the workspace by tools."""
    assert not returned(told, tool)["is_error"]
    assert result in returned(told, tool)["content"]


def test_edits_are_written(shared: Product, told: list[Event]) -> None:
    """What the tools of files wrote is in the workspace."""
    assert told
    assert (shared.project / "made/b.txt").read_text() == "one\n2\n"


@pytest.mark.parametrize(
    ("tool", "number"),
    [("edit_file", 1), ("no_such_tool", 0), ("read_file", 1)],
    ids=["text not found", "no such tool", "wrong input"],
)
def test_a_call_that_cannot_be_done(told: list[Event], tool: str, number: int) -> None:
    """A call that cannot be done is an error for the agent, and the run goes on."""
    assert returned(told, tool, number)["is_error"]


def test_a_command_that_fails(told: list[Event]) -> None:
    """A shell command that fails is an ordinary result, with both streams and the exit code."""
    result = returned(told, "shell")
    assert not result["is_error"]
    found = json.loads(result["content"])
    assert (found["stdout"], found["stderr"], found["exit_code"]) == ("out\n", "err\n", 3)


def test_a_call_is_told_with_its_reason(told: list[Event]) -> None:
    """A shell call is recorded with its command and the reason that the agent gave."""
    (called,) = [event for event in told if event["event"] == "tool.called" and event["tool"] == "shell"]
    assert called["arguments"]["command"] == "echo out; echo err >&2; exit 3"
    assert called["reasoning"] == "to see how it fails"


def test_events_for_programs(told: list[Event]) -> None:
    """`--json` prints an object for each event, from the run's creation to its end."""
    assert [told[0]["event"], told[-1]["event"]] == ["job.created", "job.ended"]


def test_each_call_is_told_before_its_result(told: list[Event]) -> None:
    """Each call of a tool stands before its result, and none is without one."""
    open_calls: list[str] = []
    for event in told:
        if event["event"] == "tool.called":
            open_calls.append(event["call_id"])
        elif event["event"] == "tool.returned":
            open_calls.remove(event["call_id"])
    assert open_calls == []


def test_what_is_used_is_counted(told: list[Event]) -> None:
    """The end of a run says how many turns and calls it took, how many tokens, and what they cost."""
    replies = [event for event in told if event["event"] == "model.replied"]
    end = told[-1]
    assert (end["turns"], end["tool_calls"]) == (len(replies), 9)
    assert end["usage"]["output_tokens"] == sum(reply["usage"]["output_tokens"] for reply in replies) > 0
    assert end["cost_usd"] == pytest.approx(sum(end["usage"].values()) / 1e6)


@pytest.mark.parametrize(
    ("options", "offered", "absent"),
    [
        ((), ["shell", "read_file", "write_file", "edit_file", "list_files", "search"], None),
        (("--toolset", "operator"), ["shell"], "edit_file"),
        (("--deny-tool", "search"), ["shell", "edit_file"], "search"),
        (("--allow-tool", "read_file"), ["read_file"], "shell"),
    ],
    ids=["coder", "operator", "denied", "allowed"],
)
def test_which_tools_are_offered(
    product: Product, options: tuple[str, ...], offered: list[str], absent: str | None
) -> None:
    """The model is offered the toolset's tools, less those that are denied or not among those allowed."""
    turns = [{"expect": {"tools": offered}, **calls((absent or "no_such_tool", {}))}, says("done")]
    assert product.run(product.script(*turns), *options).ends_as("unverified")
    (result,) = product.recorded("tool.returned")
    assert result["is_error"]
    assert all(name in result["content"] for name in offered)


def test_system_prompt(shared: Product) -> None:
    """`--system-prompt` reaches the model."""
    model = shared.script({"expect": {"system": "BE BRIEF"}, "text": "ok"}, name="system-prompt")
    assert shared.run(model, "--system-prompt", "BE BRIEF").ends_as("unverified")


def test_system_append_adds(shared: Product) -> None:
    """`--system-append` reaches the model, and leaves the agent's own system prompt in place."""
    turns = [
        {"expect": {"system": "BE BRIEF"}, **says("", "true")},
        {"expect": {"system": "sandbox"}, "text": "ok"},
    ]
    model = shared.script(*turns, name="append")
    assert shared.run(model, "--system-append", "BE BRIEF").ends_as("unverified")


@pytest.mark.parametrize("way", ["word", "stdin", "file"])
def test_ways_to_give_the_task(product: Product, way: str) -> None:
    """The task comes as a word, by `-` from stdin, or by `--file`, and reaches the model as it is."""
    task = "Do “this”,\nthen $HOME and `that`.\n"
    model = product.script({"expect": {"last_user_text": "then $HOME and `that`."}, "text": "ok"})
    file = product.place / "task.txt"
    file.write_text(task)
    given: dict[str, tuple[str, ...]] = {"word": (task,), "stdin": ("-",), "file": ("--file", str(file))}
    ended = product("run", "--model", model, *given[way], stdin=task if way == "stdin" else None)
    assert ended.ends_as("unverified")
    assert product.recorded("job.created")[0]["prompt"].strip() == task.strip()


@pytest.mark.parametrize("way", ["stdin", "file"])
def test_a_long_task(product: Product, way: str) -> None:
    """A task of a megabyte goes in by stdin or by a file."""
    model = product.script({"expect": {"last_user_text": "last words"}, "text": "ok"})
    task = "word " * 200_000 + "last words"
    file = product.place / "task.txt"
    file.write_text(task)
    if way == "stdin":
        ended = product("run", "--model", model, "-", stdin=task)
    else:
        ended = product("run", "--model", model, "--file", file)
    assert ended.ends_as("unverified")


@pytest.mark.any_user  # how runs end, by what models and programs do
@pytest.mark.parametrize(
    "fault",
    [
        {"error": {"status": 529, "times": 2, "retry_after": 0}},
        {"drop": {"after_events": 3}},
        {"malformed": {"after_events": 2}},
        {"stream_error": {"after_events": 3}},
    ],
    ids=lambda fault: next(iter(fault)),
)
def test_faults_of_the_model_are_survived(product: Product, fault: Turn) -> None:
    """A model's server that is overloaded or breaks off is asked again, and what it says then counts once."""
    model = product.script({**fault, **says("now", "echo x >> once")}, says("done"))
    assert product.run(model).ends_as("unverified")
    assert (product.project / "once").read_text() == "x\n"
    assert product.ended()["turns"] == 2


def test_what_an_agent_says_cannot_act_on_the_terminal(product: Product) -> None:
    """Control characters of an agent or a command are printed as text that does nothing."""
    model = product.script(says("\x1b[31mred\x07 \u202eback", r"printf '\033]0;title\007'"), says("done"))
    ended = product.run(model)
    assert not {"\x1b", "\x07", "\u202e"} & set(ended.out + ended.err)
    assert "red" in ended.err


def test_bytes_that_are_no_text(product: Product) -> None:
    """A command whose output is no UTF-8 breaks neither the run nor its record."""
    model = product.script(says("", r"head -c 3000 /dev/urandom; printf '\377\000\376'"), says("done"))
    assert product.run(model).ends_as("unverified")
    (result,) = product.recorded("tool.returned")
    assert "\ufffd" in json.loads(result["content"])["stdout"]
    assert product.does("runs verify", "last")


def test_a_workspace_without_git(product: Product) -> None:
    """A workspace need not be a repository: its changes are shown and taken back all the same."""
    plain = product.place / "plain"
    plain.mkdir()
    product.project = plain
    product.write("app.py", "one\n")
    product.run(product.script(FIX, says("done")))
    assert "new.txt" in product.does("diff", "last", "--stat").out
    product.does("undo", "last")
    assert (plain / "app.py").read_text() == "one\n"
    assert not (plain / "new.txt").exists()


@pytest.mark.parametrize("by", ["agent", "check"])
def test_output_is_shown_as_it_comes(product: Product, by: str) -> None:
    """The output of a command, or of the check, is on the screen while it still runs, and only once."""
    script = (
        "echo 'the first' | tr a-z A-Z; until test -e go; do sleep 0.05; done; echo 'the second' | tr a-z A-Z"
    )
    given = ["--verify", script] if by == "check" else []
    model = product.script(says("now", *([] if given else [script])), says("done"))
    with product.started("run", "--model", model, "--mode", "bind", *given, "Do it.") as process:
        before = read_until(process.stderr, b"THE FIRST")
        product.write("go")
        assert process.stderr is not None
        after = process.stderr.read()
        assert process.wait(60) in names.EXITS["succeeded"] | names.EXITS["unverified"]
    assert (before + after).count(b"THE FIRST") == 1
    assert b"THE SECOND" not in before
    assert after.count(b"THE SECOND") == 1


def test_interruption(product: Product) -> None:
    """Ctrl-C ends a run as cancelled with 130; what was made is kept and shown, and the record is sealed."""
    model = product.script(says("", "echo x > made; sleep 600"), says("done"))
    with product.started("run", "--model", model, "--json", "Do it.") as process:
        read_until(process.stdout, b"tool.called")
        poll(lambda: (product.project / "made").exists())
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in names.EXITS["cancelled"]
    assert product.ended()["state"] == "cancelled"
    assert product.record()[-1]["event"] == "journal.sealed"
    assert "made" in product.does("diff", "last", "--stat").out


def test_a_killed_run(product: Product) -> None:
    """A run that was killed is closed by the next command: it is listed as interrupted, and its record sealed."""
    model = product.script(says("", "echo x > made; sleep 600"), says("done"))
    with product.started("run", "--model", model, "Do it.") as process:
        poll(lambda: (product.project / "made").exists())
        process.kill()
        process.wait(30)
        (run,) = product.runs()
        product.does("exec", "--wait", "30s", "--", "true")
    (row,) = [row for row in product.does("runs ls", "--json").json if row["id"] == run]
    assert (row["state"], row["is_sealed"]) == ("interrupted", True)
    assert product.does("runs verify", run)


def test_one_run_at_a_time(product: Product) -> None:
    """A second run on a workspace is refused as long as one works on the files themselves; with `--wait` it waits."""
    with product.started("exec", "--", "sh", "-c", "echo in; read line; echo x > made", stdin=-1) as process:
        read_until(process.stdout, b"in")
        refused = product.exec("true")
        assert refused.ends_as("refused")
        assert product.runs()[-1] in refused.err
        with product.started("exec", "--wait", "60s", "--", "cat", "made") as waiting:
            told = read_until(waiting.stderr, b"\n")
            assert b"waiting" in told
            assert product.runs()[-1].encode() in told
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.close()
            read_until(waiting.stdout, b"x")
            assert waiting.wait(30) == 0


def test_copies_beside_a_run(product: Product) -> None:
    """Beside a run on the files themselves, others work on copies."""
    with product.started("exec", "--", "sh", "-c", "echo in; sleep 600") as process:
        read_until(process.stdout, b"in")
        assert product.does("exec", "--mode", "clone", "--", "cat", "app.py").out == "print('one')\n"


@pytest.mark.parametrize("way", ["--sandbox host", "RINGFENCE_HOST", "AGENT_LOOP_HOST"])
def test_the_bare_host_has_to_be_named(product: Product, way: str) -> None:
    """Without a fence works only who names the host, by an option or a variable; that is told and recorded."""
    variables: dict[str, Any] = {} if " " in way else {way: "1"}
    words = way.split() if " " in way else []
    ended = product("exec", *words, "--", "sh", "-c", f"test -d {product.home}", **variables)
    assert ended.code == 0
    assert way in ended.err or words
    assert "WARNING" in ended.err
    assert len(product.recorded("policy.loosened")) == 1
    assert product.recorded("sandbox.created")[0]["backend"] == "host"


def test_a_fence_that_cannot_be_had(product: Product) -> None:
    """Where no fence can be had nothing is run, never on the host: exit code 125, and a record of it."""
    words = ("exec", "--sandbox", "docker", "--image", "localhost/none:1", "--engine", "unix:///no/engine")
    ended = product(*words, "--", "touch", "made")
    assert ended.ends_as("sandbox start")
    assert "/no/engine" in ended.err
    assert not (product.project / "made").exists()
    assert product.ended()["state"] == "sandbox_start"


def test_continue(product: Product) -> None:
    """`--continue` goes on with the last conversation on the workspace: the model hears what was said before."""
    product.run(product.script(says("The word is plum.")))
    ended = product.run(product.script({"expect": {"messages": 3}, "text": "plum"}), "--continue", "--json")
    assert ended.ends_as("unverified")
    first, second = reversed(product.runs())
    assert product.recorded("job.created", second)[0]["continues"]
    assert first != second


def test_resume_and_fork(product: Product) -> None:
    """`--resume` names the conversation to go on with; with `--fork` that one stays as it was."""
    product.run(product.script(says("The word is plum.")))
    (first,) = product.runs()
    product.run(product.script(says("Nothing.")))
    three = product.script({"expect": {"messages": 3}, "text": "plum"})
    assert product.run(three, "--resume", first, "--fork").ends_as("unverified")
    assert product.run(three, "--resume", first).ends_as("unverified")


def test_continue_without_a_session(product: Product) -> None:
    """Where there is no conversation to go on with, `--continue` is a usage error, and no run is made."""
    product.run(product.script(says("x")), "--continue").fails_as("usage")
    assert not product.file("run", run="").exists() or product.runs() == []


def test_resume_of_what_is_not_there(shared: Product) -> None:
    """A conversation that is not there is a usage error that names it."""
    shared.run(shared.script(says("x"), name="gone"), "--resume", "ffffffff").fails_as("usage", "ffffffff")


def test_an_end_that_nothing_checked_is_no_success(product: Product) -> None:
    """A run without a check ends with 9, so that `&&` stops; with `--no-verify` it ends with 0."""
    model = product.script(says("done"))
    assert product.run(model).code == 9
    assert product.run(model, "--no-verify").code == 0
    assert [product.ended(run)["exit_code"] for run in product.runs()] == [0, 9]
    product.configure(product.settings, run={"verify": "none"})
    assert product.run(model).code == 0
    product.run(model, "--verify", "true", "--no-verify").fails_as("usage", "--no-verify")


def test_a_project_cannot_say_that_no_check_is_wanted(product: Product) -> None:
    """An untrusted project's file cannot make an unchecked end a success."""
    product.configure(run={"verify": "none"})
    assert product.run(product.script(says("done"))).code not in {0, 9}


@pytest.mark.parametrize("words", [(), ("--no-verify",)], ids=["no check", "none wanted"])
def test_a_required_check_that_is_not_there(product: Product, words: tuple[str, ...]) -> None:
    """A run that requires a check and has none is refused before an agent starts, with no run made."""
    model = product.script(says("done"))
    product.run(model, "--require-verified", *words).fails_as("usage", "--require-verified")
    product.configure(product.settings, run={"require_verified": True})
    meaning = "usage" if words else "configuration"
    product.run(model, *words).fails_as(meaning, "require_verified")
    assert product("runs ls", "--json").json == []


@pytest.mark.any_user  # how runs end, by what models and programs do
def test_the_time_limit_bounds_the_check(product: Product) -> None:
    """A check that is not over in time ends the run as timed out, and the option that gives it more is named."""
    words = ("--timeout", "4s", "--verify", "exec sleep 600")
    ended = product.run(product.script(says("done")), *words)
    assert ended.ends_as("timed out")
    assert "--timeout" in product.ended()["reason"]
