"""What makes jobs, and what is told of them: webhooks, files, tasks, other jobs, hooks."""

import hashlib
import hmac
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.promises.daemon import Fleet, fleet_of
from tests.promises.product import Product, give, poll, says
from tests.promises.servers import Server, kept_port, serving

SECRET = "at-least-eight-characters"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Server]:
    """A server that is told of jobs."""
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """Ports for webhooks and for metrics."""
    with kept_port() as webhooks, kept_port() as metrics:
        yield webhooks, metrics


@pytest.fixture(scope="module")
def fleet(make_product: Callable[[], Product], receiver: Server, ports: tuple[int, int]) -> Iterator[Fleet]:
    """A fleet with each kind of trigger and hook, whose daemon runs."""
    product = make_product()
    product.environment["HOOK_SECRET"] = SECRET
    with fleet_of(product) as fleet:
        product.configure(
            fleet={
                "name": "triggered",
                "webhooks": {"address": f"127.0.0.1:{ports[0]}"},
                "metrics": {"address": f"127.0.0.1:{ports[1]}"},
            },
            secrets={"hook": "env:HOOK_SECRET"},
            agents=agents(fleet, product.script(says("It is done."), name="ok"), receiver),
        )
        fleet.up()
        yield fleet


def agents(fleet: Fleet, model: str, receiver: Server) -> dict[str, Any]:
    """Its agents."""
    tasks = fleet.product.place / "tasks"
    tasks.mkdir()
    give(tasks)

    def told(path: str, **more: Any) -> dict[str, Any]:
        return {"type": "webhook", "url": f"{receiver.url}/{path}", **more}

    def command(line: str, **more: Any) -> dict[str, Any]:
        return {"type": "command", "command": line, **more}

    hook = {"type": "webhook", "secret": "${secret:hook}", "prompt": "From {{ payload.customer }}."}
    red = {"run": {"verify": "exit 1"}}
    found: dict[str, dict[str, Any]] = {
        "hooked": {"triggers": {"came": hook, "paid": {**hook, "signature": "stripe"}}},
        "failing": red,
        "mender": {
            "triggers": {
                "failed": {
                    "type": "after",
                    "agent": "failing",
                    "states": ["check_red"],
                    "prompt": "{{ payload.state }}",
                }
            }
        },
        "desk": {"triggers": {"tasks": {"type": "directory", "path": str(tasks), "every": "0.2s"}}},
        "watcher": {"triggers": {"changed": {"type": "files", "paths": ["*.csv"], "settle": "0.2s"}}},
        "telling": {
            "hooks": {
                "before_run": [command("echo before > before.txt")],
                "on_success": [told("success", secret="${secret:hook}"), command("cat > facts.json")],
                "on_failure": [told("failure")],
                "after_run": [told("after")],
            }
        },
        "telling-failure": {**red, "hooks": {"on_success": [told("no")], "on_failure": [told("yes")]}},
        "refused": {"hooks": {"before_run": [command("exit 1", required=True)]}},
    }
    return {
        name: {
            "prompt": f"I am {name}.",
            "workspace": fleet.workspace(name),
            **agent,
            "run": {"model": model, **agent.get("run", {})},
        }
        for name, agent in found.items()
    }


def post(ports: tuple[int, int], name: str, body: bytes, **headers: str) -> tuple[int, Any]:
    """Send a webhook; status and answer."""
    given = {
        "Content-Type": "application/json",
        **{key.replace("_", "-"): each for key, each in headers.items()},
    }
    request = urllib.request.Request(f"http://127.0.0.1:{ports[0]}/hooks/hooked/{name}", body, given)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def sign(body: bytes, secret: str = SECRET) -> str:
    """Sign as GitHub does."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def test_a_signed_webhook(fleet: Fleet, ports: tuple[int, int]) -> None:
    """A signed webhook makes a job, whose task has what came with it, marked as data of others."""
    body = b'{"customer": "Lovelace", "order": 1}'
    status, answer = post(ports, "came", body, X_Hub_Signature_256=sign(body))
    assert (status, answer["is_new"]) == (202, True)
    ended = fleet.ends(answer["job"])
    (created,) = fleet.product.recorded("job.created", ended["run_id"])
    assert "Lovelace" in created["prompt"]
    assert len(created["prompt"]) > len("From Lovelace.")
    assert (ended["trigger"], ended["trigger_name"]) == ("webhook", "came")


def test_a_webhook_that_comes_twice(fleet: Fleet, ports: tuple[int, int]) -> None:
    """The same body makes one job."""
    body = b'{"customer": "Hopper", "order": 2}'
    first, second = (post(ports, "came", body, X_Hub_Signature_256=sign(body)) for _ in range(2))
    assert (first[0], second[0]) == (202, 200)
    assert first[1]["job"] == second[1]["job"]


@pytest.mark.parametrize(
    "signature",
    [None, "sha256=" + "0" * 64, "wrong secret", "other body"],
    ids=["none", "zeros", "wrong secret", "other body"],
)
def test_a_webhook_that_is_not_signed(fleet: Fleet, ports: tuple[int, int], signature: str | None) -> None:
    """A webhook without its signature is refused with 401, and makes no job."""
    body = b'{"customer": "Mallory"}'
    given = {"wrong secret": sign(body, "another-secret"), "other body": sign(b"{}")}.get(
        signature or "", signature
    )
    headers = {"X_Hub_Signature_256": given} if given else {}
    before = len(fleet.jobs("hooked"))
    assert post(ports, "came", body, **headers)[0] == 401
    assert len(fleet.jobs("hooked")) == before


def test_a_webhook_that_is_no_json(fleet: Fleet, ports: tuple[int, int]) -> None:
    """A body that is no JSON is refused with 400."""
    assert post(ports, "came", b"{", X_Hub_Signature_256=sign(b"{"))[0] == 400


def test_a_webhook_that_nobody_has(fleet: Fleet, ports: tuple[int, int]) -> None:
    """A webhook of a trigger that is not there is answered 404."""
    assert post(ports, "none", b"{}", X_Hub_Signature_256=sign(b"{}"))[0] == 404


@pytest.mark.parametrize(("age_s", "status"), [(0, 202), (3600, 401)], ids=["now", "an hour ago"])
def test_a_webhook_with_its_time(fleet: Fleet, ports: tuple[int, int], age_s: int, status: int) -> None:
    """With a signature that holds the time, a request of an hour ago is refused."""
    body = json.dumps({"customer": "Turing", "age": age_s}).encode()
    sent = int(time.time()) - age_s
    digest = hmac.new(SECRET.encode(), f"{sent}.".encode() + body, hashlib.sha256).hexdigest()
    assert post(ports, "paid", body, Stripe_Signature=f"t={sent},v1={digest}")[0] == status


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_figures_at_an_address_of_their_own(fleet: Fleet, ports: tuple[int, int], path: str) -> None:
    """Figures and health answer at the address that `fleet.metrics` names, and nothing else does."""
    assert fleet
    with urllib.request.urlopen(f"http://127.0.0.1:{ports[1]}{path}") as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"http://127.0.0.1:{ports[1]}/v1/status")


def test_after_another_job(fleet: Fleet) -> None:
    """The end of another agent's job makes a job, once, whose task has what became of that one."""
    ended = fleet.does("failing")
    assert ended["state"] == "check_red"
    (made,) = poll(lambda: fleet.jobs("mender"))
    assert (made["trigger"], made["trigger_name"], made["parent"]) == ("after", "failed", ended["id"])
    (created,) = fleet.product.recorded("job.created", fleet.ends(made["id"])["run_id"])
    assert "check_red" in created["prompt"]


def test_task_files(fleet: Fleet) -> None:
    """A file put into a directory of tasks becomes a job, and lies in `done/` with the answer beside it afterwards."""
    place = fleet.product.place
    (place / "new.md").write_text("Sum up the orders.")
    (place / "new.md").rename(place / "tasks" / "new.md")
    done = place / "tasks" / "done"
    poll(lambda: done.exists() and any(path.suffix == ".result" for path in done.iterdir()))
    names = [path.name for path in done.iterdir()]
    assert len(names) == 2
    assert all("new.md" in name for name in names)
    (result,) = [path.read_text() for path in done.iterdir() if path.suffix == ".result"]
    assert "It is done." in result
    (created,) = fleet.product.recorded("job.created", fleet.jobs("desk")[0]["run_id"])
    assert "Sum up the orders." in created["prompt"]


def test_changed_files(fleet: Fleet) -> None:
    """A change of files that a trigger names makes a job; one of other files does not."""
    place = fleet.product.place / "workspaces" / "watcher"
    (place / "other.txt").write_text("x")
    (place / "orders.csv").write_text("apples,4\n")
    made = poll(lambda: fleet.jobs("watcher"))
    assert made[-1]["trigger_name"] == "changed"


@pytest.fixture(scope="module")
def told(fleet: Fleet, receiver: Server) -> dict[str, Any]:
    """What was told of a job that went well, by path."""
    job = fleet.does("telling")

    def all_of_it() -> dict[str, Any]:
        found = {got.path: got for got in receiver.got if got.json.get("job", {}).get("id") == job["id"]}
        return found if len(found) >= 2 else {}

    return poll(all_of_it)


@pytest.mark.parametrize("path", ["/success", "/after"])
def test_services_are_told(told: dict[str, Any], path: str) -> None:
    """A service is told of a job's end with its facts and its answer."""
    facts = told[path].json
    assert (facts["job"]["state"], facts["job"]["agent"]) == ("unverified", "telling")
    assert facts["answer"] == "It is done."
    assert told[path].headers["x-ringfence-delivery"]


def test_messages_are_signed(told: dict[str, Any]) -> None:
    """With a secret a message is signed by HMAC-SHA256 over its body."""
    got = told["/success"]
    assert got.headers["x-ringfence-signature-256"] == sign(got.body)


def test_other_moments_are_not_told(told: dict[str, Any]) -> None:
    """A job that went well is not told as a failure."""
    assert "/failure" not in told


def test_failures_are_told(fleet: Fleet, receiver: Server) -> None:
    """A job whose check fails is told as a failure, and not as a success."""
    job = fleet.does("telling-failure")
    paths = poll(lambda: {got.path for got in receiver.got if got.json.get("job", {}).get("id") == job["id"]})
    assert paths == {"/yes"}


def test_commands_around_a_job(fleet: Fleet, told: dict[str, Any]) -> None:
    """Commands before and after a job run on its workspace, and have the job's facts on their stdin."""
    assert told
    place = fleet.product.place / "workspaces" / "telling"
    assert (place / "before.txt").read_text() == "before\n"
    poll(lambda: (place / "facts.json").exists() and (place / "facts.json").read_text())
    facts = json.loads((place / "facts.json").read_text())
    assert facts["job"]["agent"] == "telling"


def test_a_required_hook_that_fails(fleet: Fleet) -> None:
    """A job whose required hook fails is not begun, and ends as failed."""
    ended = fleet.does("refused")
    assert ended["state"] == "failed"
    assert ended["tokens"] == 0
