"""How each golden directory is made: which commands run in which order, and what is killed when.

Recipes use the names that version 0.1 has for its commands, and return the facts that tests compare with.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from .environment import API_KEYS, RecipeEnvironment, embed_script

Facts = dict[str, Any]
Recipe = Callable[[RecipeEnvironment], Facts]
RECIPES: dict[str, Recipe] = {}
"""By the name of the case."""
EXCLUDED = ("home",)
"""Directories that no case contains."""

WRONG = "def add(a, b):\n    return a - b\n"
CHECK = "grep -q + calc.py"
BIG = "0123456789abcdef" * 4200
"""A text that is too long for a line of the journal."""
_SHORT_REQUESTS = ("--system-prompt", "Work.", "--allow-tool", "Bash")
"""Without these options most of a record is the agent CLI's own instructions."""


def recipe(function: Recipe) -> Recipe:
    """Register a function as the recipe of the case with its name."""
    RECIPES[function.__name__.replace("_", "-")] = function
    return function


def shell(command: str) -> Mapping[str, Any]:
    """A call of the shell tool, for a script."""
    return {"name": "shell", "input": {"command": command, "reasoning": "as scripted"}}


@recipe
def run_api(env: RecipeEnvironment) -> Facts:
    """A run of the `api` runtime with thinking, two tool calls, a body beside the journal and a check; its export."""
    env.write("project/calc.py", WRONG)
    env.commit_project()
    write_file = {"name": "write_file", "input": {"path": "big.txt", "content": BIG}}
    model = env.write_script(
        "script",
        {
            "thinking": "The sign is wrong.",
            "text": "I correct the sign.",
            "tools": [shell("sed -i s/-/+/ calc.py")],
        },
        {"text": "And write a big file.", "tools": [write_file]},
        {"text": "Corrected."},
    )
    env.run("run", "Correct add", "--model", model, "--verify", CHECK)
    (run,) = env.run_ids()
    env.run("runs", "export", run, "--output", env.root / "export.json")
    env.write("changes.patch", env.run("diff", run, "--raw"))
    return {"run": run}


@recipe
def run_docker(env: RecipeEnvironment) -> Facts:
    """A run of the `api` runtime in a Docker container."""
    env.write("project/calc.py", WRONG)
    correct = {"text": "I correct the sign.", "tools": [shell("sed -i s/-/+/ calc.py")]}
    model = env.write_script("script", correct, {"text": "Corrected."})
    assert env.image is not None, "TEST_CONTAINER_IMAGE names no image"
    container = ("--sandbox", "docker", "--image", env.image)
    env.run("run", "Correct add", "--model", model, "--verify", CHECK, *container)
    (run,) = env.run_ids()
    env.write("changes.patch", env.run("diff", run, "--raw"))
    return {"run": run}


@recipe
def run_claude_cli(env: RecipeEnvironment) -> Facts:
    """A run of the `claude` CLI."""
    return _run_client(env, "claude-cli", "claude-opus-4-5", *_SHORT_REQUESTS)


@recipe
def run_claude_sdk(env: RecipeEnvironment) -> Facts:
    """A run of the Claude Agent SDK."""
    return _run_client(env, "claude-sdk", "claude-opus-4-5", *_SHORT_REQUESTS)


@recipe
def run_codex_cli(env: RecipeEnvironment) -> Facts:
    """A run of the `codex` CLI."""
    return _run_client(env, "codex-cli", "gpt-5.5", "--system-prompt", "Work.")


def _run_client(env: RecipeEnvironment, runtime: str, model: str, *options: str) -> Facts:
    """A run of an agent CLI that appends a line to a file."""
    env.write("project/note.txt", "one\n")
    append = {"text": "I append it.", "tools": [{"run": "echo two >> note.txt"}]}
    task = embed_script("Append a line.", [append, {"text": "Appended."}])
    program = env.find_program("codex" if runtime == "codex-cli" else "claude")
    with env.scripted_apis():
        env.run(
            *("run", task, "--runtime", runtime, "--cli-path", program, "--model", model),
            *("--verify", "grep -q two note.txt", *options),
        )
    (run,) = env.run_ids()
    env.write("changes.patch", env.run("diff", run, "--raw"))
    (session,) = (path.parent.name for path in env.state.glob("sessions/*/session.json"))
    return {"run": run, "session": session}


@recipe
def execution(env: RecipeEnvironment) -> Facts:
    """Two commands: one on the workspace itself, one on a private clone whose changes were not applied."""
    env.write("project/note.txt", "one\n")
    env.run("exec", "--", "sh", "-c", "echo output; echo error >&2; echo two >> note.txt; exit 3", code=3)
    env.run("exec", "--mode", "clone", "--", "sh", "-c", "echo three > clone.txt")
    bind, clone = env.run_ids()
    return {"bind": bind, "clone": clone}


@recipe
def replay(env: RecipeEnvironment) -> Facts:
    """A run of an agent and one of a command with a model request; `ringfence replay` has replayed both."""
    env.write("project/note.txt", "one\n")
    read = {"text": "I read it.", "tools": [shell("cat note.txt")]}
    model = env.write_script("script", read, {"text": "It says one."})
    env.run("run", "Read the note", "--model", model)
    prompt = embed_script("Hello", [{"text": "Hello yourself."}])
    body = {"model": "scripted", "max_tokens": 9, "messages": [{"role": "user", "content": prompt}]}
    request = (
        "import os, urllib.request as u; url = os.environ['ANTHROPIC_BASE_URL'] + '/v1/messages'; "
        f"headers = {{'content-type': 'application/json', 'x-api-key': 'any'}}; body = {json.dumps(body)!r}; "
        "print(u.urlopen(u.Request(url, body.encode(), headers)).read().decode())"
    )
    with env.scripted_apis():
        env.run("exec", "--allow", "model", "--", "python3", "-c", request)
    agent, command = env.run_ids()
    for run in (agent, command):
        env.run("replay", run)
    assert env.run_ids() == [agent, command], "a replay writes no record"
    return {"agent": agent, "command": command}


@recipe
def imported(env: RecipeEnvironment) -> Facts:
    """The configuration directories of both agent CLIs with a session each, and the records imported from them."""
    env.write("project/note.txt", "one\n")
    read = {"text": "I read it.", "tools": [{"run": "cat note.txt"}]}
    task = embed_script("Read the note.", [read, {"text": "It says one."}])
    with env.scripted_apis():
        for client, *options in (
            ("claude", "--model", "claude-opus-4-5", *_SHORT_REQUESTS),
            ("codex", "--model", "gpt-5.5", "--system-prompt", "Work."),
        ):
            program = env.find_program(client)
            env.run("run", task, "--runtime", f"{client}-cli", "--cli-path", program, *options)
            (files,) = env.state.glob("sessions/*/files")
            files.rename(env.root / client)
            shutil.rmtree(env.state)
    env.variables |= {"CLAUDE_CONFIG_DIR": str(env.root / "claude"), "CODEX_HOME": str(env.root / "codex")}
    sessions = {}
    for row in env.run_json("session", "ls"):
        env.run("session", "import", row["session_id"])
        sessions[row["client"]] = {"session": row["session_id"], "run": env.run_ids()[-1]}
    return sessions


@recipe
def sandboxes(env: RecipeEnvironment) -> Facts:
    """A standing sandbox that was removed, and one that was open when all processes were killed."""
    env.write("project/note.txt", "one\n")
    other = env.root / "other"
    other.mkdir()
    env.run("sandbox", "create", "removed")
    env.run("sandbox", "exec", "removed", "--", "sh", "-c", "echo output; echo two >> note.txt")
    env.run("sandbox", "rm", "removed")
    env.run("sandbox", "create", "open", "--workspace", other)
    env.run("sandbox", "exec", "open", "--", "sh", "-c", "echo three > three.txt")
    removed, opened = env.run_ids()
    env.kill_all_processes()
    return {"removed": removed, "open": opened}


@recipe
def checkpoints(env: RecipeEnvironment) -> Facts:
    """Two manual checkpoints, a restore, and a run that can be undone."""
    env.write("project/calc.py", WRONG)
    env.write("project/tool.sh", "echo tool\n").chmod(0o755)
    (env.project / "link").symlink_to("calc.py")
    env.write("project/.gitignore", "*.log\n")
    env.write("project/ignored.log", "ignored\n")
    env.commit_project()
    env.run("checkpoint", "create", "first")
    env.write("project/calc.py", WRONG.replace("-", "+"))
    env.write("project/more.txt", "more\n")
    env.run("checkpoint", "create", "second")
    env.run("checkpoint", "restore", "first")
    env.run("exec", "--", "sh", "-c", "rm link; echo run > run.txt; sed -i s/-/*/ calc.py")
    (run,) = env.run_ids()
    return {"run": run}


@recipe
def journals(env: RecipeEnvironment) -> Facts:
    """A sealed journal, an interrupted one that a later command closed, and two that were open at a SIGKILL.

    One of the two ends with half a line, as after a crash of the file system: the recipe writes it. The interrupted runs
    held leases on a key, which are revoked by a command that writes the id of the lease to `revoked.txt`.
    """
    other = env.root / "other"
    other.mkdir()
    env.run("exec", "--", "echo", "sealed")
    revoke = ["/bin/sh", "-c", f"echo $0 >> {env.root}/revoked.txt", "{lease}"]
    key_file = env.write("config/key", API_KEYS["ANTHROPIC_API_KEY"])
    key = {"cmd": ["/bin/cat", str(key_file)], "revoke": revoke}
    env.write("config/ringfence/ringfence.yaml", json.dumps({"secrets": {"ANTHROPIC_API_KEY": key}}))
    for names in (["closed"], ["open", "torn"]):
        for name, workspace in zip(names, (env.project, other), strict=False):
            command = f"echo {name} > {name}.txt; sleep 600"
            env.start("exec", "--allow", "model", "--", "sh", "-c", command, workspace=workspace)
            env.wait_until((workspace / f"{name}.txt").exists)
        env.kill_all_processes()
    runs = sorted(path.name for path in (env.state / "runs").iterdir())
    facts = dict(zip(("sealed", "closed", "open", "torn"), runs, strict=True))
    with (env.state / "runs" / facts["torn"] / "journal.jsonl").open("a") as journal:
        journal.write('{"seq":5,"time":"2026-01-28T10:30:45.123456Z","prev":"6e0c')
    return facts


@recipe
def loop_ended(env: RecipeEnvironment) -> Facts:
    """A loop that ended: one story passed, the other was rejected on its only attempt and skipped."""
    _write_loop_project(env)
    wrong = "touch pieces/two.py"
    model = env.write_script("script", cases=[*_story_script("one"), *_story_script("two", build=wrong)])
    env.run(*_LOOP_START, "--prd", env.root / "prd.json", "--attempts", "1", "--model", model, code=3)
    (row,) = env.run_json("loop", "ls")["loops"]
    env.run("loop", "export", env.root / "progress.json")
    return {"loop": row["id"]}


@recipe
def loop_killed(env: RecipeEnvironment) -> Facts:
    """A loop whose processes were killed during the implementation of its second story.

    Afterwards the script of the model is replaced by one that does not wait.
    """
    _write_loop_project(env)
    wait = f"{_build_command('two')}; touch waiting; sleep 600"
    model = env.write_script("script", cases=[*_story_script("one"), *_story_script("two", build=wait)])
    env.start(*_LOOP_START, "--prd", env.root / "prd.json", "--model", model)
    env.wait_until(lambda: any(env.root.glob("**/waiting")))
    (row,) = env.run_json("loop", "ls")["loops"]
    env.kill_all_processes()
    env.write_script("script", cases=[*_story_script("one"), *_story_script("two")])
    return {"loop": row["id"]}


_LOOP_START = ("loop", "start", "--env", "PYTHONDONTWRITEBYTECODE=1")


def _write_loop_project(env: RecipeEnvironment) -> None:
    """A repository with a green test suite, and two stories."""
    for package in ("pieces", "tests"):
        env.write(f"project/{package}/__init__.py", "")
    test = "import unittest\n\n\nclass Test(unittest.TestCase):\n    def test_old(self):\n        pass\n"
    env.write("project/tests/test_old.py", test)
    stories = [
        {
            "id": name,
            "title": f"The piece {name}",
            "description": f"pieces/{name}.py has a function {name}() that returns '{name}'.",
            "acceptance_criteria": [f"{name}() returns '{name}'"],
        }
        for name in ("one", "two")
    ]
    env.write("prd.json", json.dumps({"title": "Pieces", "stories": stories}))
    env.commit_project()


def _build_command(name: str) -> str:
    return f"printf 'def {name}():\\n    return \"{name}\"\\n' > pieces/{name}.py"


def _story_script(name: str, *, build: str | None = None) -> list[Facts]:
    """The turns of each role in a story; the implementor runs `build`."""
    test = (
        f"cat > tests/test_{name}.py <<'END'\nimport unittest\nfrom pieces.{name} import {name}\n\n"
        f"class Test(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual({name}(), '{name}')\nEND"
    )
    questions = ("criteria_tested", "real_implementation", "truthful_tests", "intent_met")
    review = {"questions": [{"id": each, "answer": True, "evidence": "seen"} for each in questions]}
    evidence = [{"test": f"tests.test_{name}.Test.test_it"}]
    criteria = [{"criterion": 1, "verdict": "met", "evidence": evidence, "reason": "seen"}]
    verdict = {"criteria": criteria, "overall": "pass", "feedback": ""}
    turns: dict[str, list[Facts]] = {
        "test_writer": [{"tools": [{"run": test}]}, {"text": "done"}],
        "implementor": [{"tools": [{"run": build or _build_command(name)}]}, {"text": "done"}],
        "reviewer": [{"text": json.dumps(review)}],
        "judge": [{"text": json.dumps(verdict)}],
    }
    return [{"when": [f"role: {role}", f"story: {name}"], "turns": each} for role, each in turns.items()]


_FLEET: dict[str, Any] = {
    "fleet": {"name": "golden", "workers": 1, "timezone": "UTC", "drain": "1s", "retention": {"age": None}},
    "limits": {"wall_clock": "5m"},
    "agents": {
        "writer": {
            "prompt": "Write a line.",
            "workspace": "writer",
            "run": {"model": "scripted:quick.yaml", "verify": "test -s lines.txt"},
            "schedules": {
                "yearly": {"cron": "0 3 29 2 *", "timezone": "Europe/Berlin", "catch_up": "skip"},
                "monthly": {"every": "30d", "catch_up": "skip"},
            },
        },
        "failing": {
            "prompt": "Write another line.",
            "workspace": "failing",
            "run": {"model": "scripted:quick.yaml", "verify": "exit 1"},
        },
        "slow": {
            "prompt": "Write a line slowly.",
            "workspace": "slow",
            "run": {"model": "scripted:slow.yaml"},
            "retry": {"backoff": "1s"},
        },
        "disabled": {"prompt": "Wait.", "workspace": "disabled", "run": {"model": "scripted:quick.yaml"}},
    },
}
"""Retention never removes a job, and no schedule is likely to fire during a test: `yearly` fires on 29 February only."""


@recipe
def fleet(env: RecipeEnvironment) -> Facts:
    """A fleet that was killed: ended, running and queued jobs, an active and a paused schedule, a disabled agent.

    One queued job waits for the disabled agent, the other one for the running job. Afterwards the script of the running
    job is replaced by one that does not wait.
    """
    for agent in _FLEET["agents"]:
        (env.project / agent).mkdir()
    write = {"text": "I write.", "tools": [shell("echo line >> lines.txt")]}
    env.write_script("project/quick", write, {"text": "Written."})
    env.write_script(
        "project/slow", {"text": "I wait.", "tools": [shell("echo one >> lines.txt; sleep 600")]}
    )
    env.write("project/ringfence.yaml", json.dumps(_FLEET, indent=1))
    env.run("config", "trust", "--yes")
    env.run("fleet", "up", "--detach")
    jobs = {
        "succeeded": env.run_json("fleet", "trigger", "writer", "--wait")["id"],
        "check_red": env.run_json("fleet", "trigger", "failing", "--wait", code=3)["id"],
    }
    env.run("fleet", "agents", "disable", "disabled")
    jobs["cancelled"] = env.run_json("fleet", "trigger", "disabled")["job"]["id"]
    env.run("job", "cancel", jobs["cancelled"])
    jobs["disabled"] = env.run_json("fleet", "trigger", "disabled")["job"]["id"]
    env.run("fleet", "schedules", "pause", "writer/monthly")
    jobs["running"] = env.run_json("fleet", "trigger", "slow", "--key", "first")["job"]["id"]
    env.wait_until((env.project / "slow" / "lines.txt").exists)
    jobs["queued"] = env.run_json("fleet", "trigger", "slow")["job"]["id"]
    states = {row["id"]: row["state"] for row in env.run_json("job", "ls")["jobs"]}
    env.kill_all_processes()
    again = {"text": "I write again.", "tools": [shell("echo two >> lines.txt")]}
    env.write_script("project/slow", again, {"text": "Written again."})
    return {"jobs": jobs, "states": {name: states[job] for name, job in jobs.items()}}
