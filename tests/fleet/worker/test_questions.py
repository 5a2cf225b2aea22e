"""Questions of a fleet's jobs: asked in real sandboxes, answered while nothing runs, and resumed from."""

import http.client
import json
import re
import secrets
import threading
from typing import Any

import pytest
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import Ended, FleetFiles
from tests.fleet.receiver import receiver
from tests.fleet.signing import sign
from tests.fleet.worker.asking import HOST, REASON, asking_agent, shell
from tests.ports import kept_port

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def asks(make_crew: Make) -> FleetFiles:
    """A fleet whose agents ask for hosts; `other` is not granted what `granted` is."""
    crew = make_crew()
    common = asking_agent(crew)
    worded = crew.script(
        "worded", {"text": "?", "tools": [{"name": "ask_person", "input": {"question": "Which colour?"}}]}
    )
    limited = crew.script("limited", {"text": "?", "tools": [shell("true")]}, {"text": "done"})
    crew.write(
        fleet={"name": "c", "drain": "1s"},
        agents={
            "asker": common,
            "other": common,
            "granted": common,
            "hasty": {**common, "ask": {"about": ["host"], "deadline": "2s"}},
            "worded": {**common, "ask": {"about": ["question"]}, "run": {"model": worded}},
            "limited": {
                **common,
                "ask": {"about": ["budget"]},
                "limits": {"tokens": 10},
                "run": {"model": limited},
            },
        },
    )
    crew.up()
    return crew


def _waits(crew: FleetFiles, job: str) -> Any:
    """Wait until a job waits; return its open question."""
    crew.waits(lambda: crew.job(job)["state"], lambda state: state == "waiting")
    (question,) = [each for each in crew.client.get("inbox", open="true") if each["job"] == job]
    return question


def _list(crew: FleetFiles) -> str:
    return crew.does("inbox", "ls").out


def _events(crew: FleetFiles, run: str) -> list[Any]:
    return [json.loads(line) for line in crew.does("runs", "logs", run, "--json").out.splitlines()]


def _of_kind(crew: FleetFiles, run: str, name: str) -> list[Any]:
    return [each["data"] for each in _events(crew, run) if each["event"] == name]


def test_a_refused_host_waits_through_a_restart_and_the_job_continues(crew: FleetFiles):
    """A waiting job holds nothing, its answer starts an attempt that resumes, and both records name the answer."""
    crew.write(fleet={"name": "c", "drain": "1s"}, agents={"asker": asking_agent(crew)})
    crew.up()
    job = crew.trigger("asker")
    question = _waits(crew, job)
    assert (question["kind"], question["rule"]) == ("host", {"host": HOST, "port": 443})
    assert (question["text"], question["asks"]) == (REASON, f"to connect to {HOST}:443")
    held = crew.job(job)
    assert (held["ended_at"], crew.status()["active"]) == (None, 0)
    crew.does("fleet", "down", "--now")
    assert [each["id"] for each in crew.does("inbox", "ls", "--json").json["questions"]] == [question["id"]]
    too_long = crew.run("inbox", "answer", question["id"], "allow", "--reply", "x" * 20_001)
    assert (too_long.code, "reply" in too_long.err, too_long.err.count("\n")) == (2, True, 1)
    answered = crew.does("inbox", "answer", question["id"], "allow", "--json").json
    crew.up()
    ended = crew.ends(job)
    assert (ended["state"], ended["attempt"]) == ("unverified", 2)
    first, second = (each["run_id"] for each in ended["attempts"])
    (asked,) = _of_kind(crew, first, "job.ended")
    assert asked["question"] == {"kind": "host", "rule": {"host": HOST, "port": 443}, "text": REASON}
    (recorded,) = _of_kind(crew, second, "question.answered")
    assert (recorded["question"], recorded["run"], recorded["by"]) == (
        question["id"], first, answered["answered_by"],
    )  # fmt: skip
    (created,) = _of_kind(crew, second, "job.created")
    assert created["configuration"]["egress"]["allow"] == [f"{HOST}:443"]
    assert created["continues"] == first
    assert f"you may now connect to {HOST}:443" in created["prompt"]
    for run in (first, second):
        assert crew.does("runs", "verify", run, "--json").code == 0
    crew.does("apply", second)
    assert (crew.project / "made.txt").read_text() == "made\nmade\n"


def test_a_denied_question_ends_its_job(asks: FleetFiles):
    """A denied job ends as blocked, with the name of the person."""
    job = asks.trigger("asker")
    question = _waits(asks, job)
    asks.does("inbox", "answer", question["id"], "deny")
    ended = asks.ends(job)
    by = asks.client.get("inbox", question["id"])["answered_by"]
    assert (ended["state"], ended["reason"], ended["attempt"]) == ("blocked", f"denied by {by}", 1)


def test_a_deadline_ends_its_job(asks: FleetFiles):
    """After its deadline a question takes no answer, and its job ends as blocked."""
    job = asks.trigger("hasty")
    ended = asks.ends(job)
    assert ended["state"] == "blocked"
    (question,) = [each for each in asks.client.get("inbox", agent="hasty") if each["job"] == job]
    assert (question["answer"], question["id"] in ended["reason"]) == ("expired", True)
    refused = asks.run("inbox", "answer", question["id"], "allow")
    assert (refused.code, "was expired" in refused.err) == (2, True)


def test_of_two_answers_at_once_one_counts(asks: FleetFiles):
    """Of two concurrent answers, one is refused with the name of the person who gave the other."""
    job = asks.trigger("asker")
    question = _waits(asks, job)["id"]
    ends: list[Ended] = []

    def answer() -> None:
        ends.append(asks.run("inbox", "answer", question, "allow"))

    threads = [threading.Thread(target=answer) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good, refused = sorted(ends, key=lambda end: end.code)
    assert (good.code, refused.code) == (0, 2)
    by = asks.client.get("inbox", question)["answered_by"]
    assert f"was allowed by {by}" in refused.err
    assert asks.ends(job)["attempt"] == 2


def test_a_grant_for_the_agent_holds_for_its_next_job_only(asks: FleetFiles):
    """The agent's next job has the grant without a question, until it is revoked; another agent's job does not."""
    first = asks.trigger("granted")
    asks.does("inbox", "answer", _waits(asks, first)["id"], "allow", "--for", "agent")
    assert asks.ends(first)["state"] == "unverified"
    later = asks.ends(asks.trigger("granted"))
    assert (later["state"], later["attempt"]) == ("unverified", 1)
    (created,) = _of_kind(asks, later["run_id"], "job.created")
    assert created["configuration"]["egress"]["allow"] == [f"{HOST}:443"]
    assert any(HOST in each["what"] for each in _of_kind(asks, later["run_id"], "policy.loosened"))
    other = asks.trigger("other")
    assert _waits(asks, other)["agent"] == "other"
    (grant,) = asks.client.get("grants")
    assert grant["agent"] == "granted"
    revoked = asks.does("inbox", "revoke", grant["id"])
    assert f"agent granted may no longer connect to {HOST}:443" in revoked.out
    assert asks.run("inbox", "revoke", grant["id"]).code == 2
    _waits(asks, asks.trigger("granted"))


def test_a_person_is_notified_of_questions_failures_and_changes(crew: FleetFiles):
    """Fleet hooks notify of all questions, failures and changes; an agent's `on_waiting` hook of its questions."""
    with receiver() as fleet, receiver() as own:
        agent = {**asking_agent(crew), "hooks": {"on_waiting": [{"type": "webhook", "url": own.url}]}}
        crew.write(
            fleet={"name": "c", "drain": "1s", "notify": [{"type": "webhook", "url": fleet.url}]},
            agents={"asker": agent},
        )
        crew.up()
        job = crew.trigger("asker")
        question = _waits(crew, job)["id"]
        told = json.loads(fleet.take()[1])
        assert (told["event"], told["need"], told["question"]["id"]) == ("on_inbox", "question", question)
        assert json.loads(own.take()[1])["event"] == "on_waiting"
        crew.does("inbox", "answer", question, "allow")
        crew.ends(job)
        told = json.loads(fleet.take()[1])
        assert (told["need"], told["job"]["id"], told["job"]["state"]) == ("apply", job, "unverified")
        assert own.got == []


def test_a_cancelled_job_takes_its_question_back(asks: FleetFiles):
    """Cancelling a waiting job closes its question at once."""
    job = asks.trigger("other")
    question = _waits(asks, job)["id"]
    asks.does("job", "cancel", job)
    assert asks.job(job)["state"] == "cancelled"
    assert asks.client.get("inbox", question)["answer"] == "withdrawn"


def test_the_agents_own_question_is_answered_by_a_message(asks: FleetFiles):
    """An agent's own question is listed in its words, and needs an answer with a message, which the agent reads."""
    job = asks.trigger("worded")
    question = _waits(asks, job)
    assert (question["kind"], question["rule"], question["text"]) == ("question", {}, "Which colour?")
    assert re.search(
        rf"^{question['id']}  worded +asks: Which colour\? +open, 6d 23h left$", _list(asks), re.MULTILINE
    )
    refused = asks.run("inbox", "answer", question["id"], "allow")
    assert (refused.code, "--reply" in refused.err) == (2, True)
    asks.script("worded", {"text": "blue it is", "expect": {"last_user_text": "The person writes:\n\nblue"}})
    asks.does("inbox", "answer", question["id"], "allow", "--reply", "blue")
    assert asks.ends(job)["state"] == "unverified"


def test_a_raised_limit_lets_the_job_continue(asks: FleetFiles):
    """The question proposes the sum of all attempts plus the agent's limit; once allowed, the job continues."""
    job = asks.trigger("limited")
    question = _waits(asks, job)
    used = asks.job(job)["tokens"]
    assert question["rule"] == {"limit": "tokens", "to": used + 10}
    asks.script("limited", {"text": "done"})
    asks.does("inbox", "answer", question["id"], "allow")
    ended = asks.ends(job)
    assert (ended["state"], ended["attempt"]) == ("unverified", 2), ended


def test_a_signed_request_answers_a_question(crew: FleetFiles):
    """The signature covers the question's id; another question, a wrong key and a second answer are refused."""
    key = secrets.token_hex(16)
    (crew.home / "key").write_text(key)
    (crew.home / "key").chmod(0o600)
    with kept_port() as port:
        crew.write(
            fleet={
                "name": "c",
                "drain": "1s",
                "webhooks": {"address": f"127.0.0.1:{port}"},
                "inbox": {"secret": "${secret:answers}"},
            },
            secrets={"answers": f"file:{crew.home / 'key'}"},
            agents={"asker": asking_agent(crew)},
        )
        crew.up()
        job = crew.trigger("asker")
        question = _waits(crew, job)["id"]
        content = {"question": question, "answer": "allow", "by": "ann"}

        def post(to: str, content: Any, key: str) -> tuple[int, Any]:
            body = json.dumps(content).encode()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            headers = {"Content-Type": "application/json", "X-Hub-Signature-256": sign(key.encode(), body)}
            try:
                connection.request("POST", f"/hooks/inbox/{to}", body, headers)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            finally:
                connection.close()

        assert post(question, content, "another")[0] == 401
        assert post(question, {**content, "question": "q0000000000"}, key)[0] == 400
        assert post(question, {**content, "rule": {"host": "evil.example"}}, key)[0] == 400
        assert crew.job(job)["state"] == "waiting"
        assert post(question, content, key) == (200, {"question": question, "answer": "allow", "job": job})
        status, refused = post(question, content, key)
        assert (status, "already answered" in refused["error"]) == (409, True)
        # The question is looked up before the secret is read, so a wrong key does not matter here.
        assert post("q0000000000", content, "another")[0] == 404
        assert post(question, content, "another")[0] == 409
        assert crew.ends(job)["attempt"] == 2


@pytest.mark.parametrize("end", ["deny", "cancel"])
def test_the_hooks_and_the_source_hear_of_a_job_that_ends_while_it_waits(crew: FleetFiles, end: str):
    """As for any other end, the task file is moved and the person is notified."""
    tasks = crew.home / "tasks"
    tasks.mkdir()
    trigger = {"type": "directory", "path": str(tasks), "every": "0.2s"}
    with receiver() as told:
        hooks = {"after_run": [{"type": "webhook", "url": told.url}]}
        agent = {**asking_agent(crew), "triggers": {"tasks": trigger}, "hooks": hooks}
        crew.write(fleet={"name": "c", "drain": "1s"}, agents={"asker": agent})
        crew.up()
        (tasks / "fetch.md").write_text("Fetch it.")
        (job,) = crew.waits(lambda: crew.jobs(agent="asker", state="waiting"), bool)
        question = _waits(crew, job["id"])["id"]
        assert told.got == []
        crew.does(*(["inbox", "answer", question, "deny"] if end == "deny" else ["job", "cancel", job["id"]]))
        facts = json.loads(told.take()[1])
        state = "blocked" if end == "deny" else "cancelled"
        assert (facts["job"]["id"], facts["job"]["state"]) == (job["id"], state)
        failed = tasks / "failed"
        crew.waits(lambda: sorted(failed.glob("*fetch.md")) if failed.is_dir() else [], bool)
