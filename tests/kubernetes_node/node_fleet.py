"""A fleet of deploy/kubernetes on the node: its image, a database and a repository on this machine, its namespace."""

import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.deploy.rendered import DEPLOY, ROOT
from tests.postgres import cluster

SCRIPT = ROOT / "scripts/kubernetes.sh"
PATIENCE_S = 180.0
SANDBOX = "app.kubernetes.io/managed-by=ringfence"
_USER = 10001
_HOLDS = {
    "price": {"input": 0, "output": 0},
    "turns": [
        {"text": "I wait.", "tools": [{"run": "sleep 40; echo through > written"}]},
        {"text": "It is written."},
    ],
}


@cache
def host() -> str:
    """This machine, as pods reach it: the first address of the node's network."""
    query = "jsonpath={.items[0].status.addresses[0].address}"
    node = subprocess.run(
        ["kubectl", "get", "nodes", "-o", query], capture_output=True, text=True, check=True
    )
    return f"{node.stdout.rpartition('.')[0]}.1"


class NodeFleet:
    """A fleet that runs.

    Args:
        namespace: Where it runs.
    """

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl in the fleet's namespace; it must succeed."""
        command = ["kubectl", "--namespace", self.namespace, *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def ringfence(self, *words: str) -> str:
        """Run a command in the daemon's pod."""
        return self.kubectl("exec", "deploy/ringfence-daemon", "-c", "daemon", "--", "ringfence", *words)

    def trigger(self) -> str:
        """Create a job; return its id."""
        return str(json.loads(self.ringfence("fleet", "trigger", "holds", "--json"))["job"]["id"])

    def job(self, job: str) -> dict[str, Any]:
        """A job with its attempts."""
        found: dict[str, Any] = json.loads(self.ringfence("job", "show", job, "--json"))
        return found

    def ended(self, job: str) -> dict[str, Any]:
        """Wait for the end of a job; return it."""
        found: dict[str, Any] = self.wait(lambda: self.job(job), lambda one: one["ended_at"] is not None)
        return found

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """The pods of a selector."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "-l", selector, "-o", "json"))[
            "items"
        ]
        return found

    def working_sandbox(self) -> tuple[str, str]:
        """Wait for a sandbox that runs; return its pod's name, and that of the worker that owns it."""
        running = self.wait(
            lambda: [one for one in self.pods(SANDBOX) if one["status"].get("phase") == "Running"], bool
        )
        (owner,) = running[0]["metadata"]["ownerReferences"]
        return str(running[0]["metadata"]["name"]), str(owner["name"])

    def wait(self, ask: Callable[[], Any], is_it: Callable[[Any], bool]) -> Any:
        """Ask until the answer is the one that is waited for; return it."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_it(answer := ask()):
            assert time.monotonic() < deadline, answer
            time.sleep(1)
        return answer


@contextmanager
def node_fleet(directory: Path, sandbox_image: str) -> Iterator[NodeFleet]:
    """Build the fleet's image, and run a daemon and two workers until the context ends.

    Args:
        directory: For its files.
        sandbox_image: Of its agent's sandboxes; the node has it.
    """
    fleet = NodeFleet(f"fleet-{uuid.uuid4().hex[:8]}")
    image = f"localhost/ringfence/fleet:{fleet.namespace}"
    with ExitStack() as stack:
        build = ["docker", "build", "-q", "-t", image, "--build-arg", f"BASE={sandbox_image}"]
        subprocess.run(
            [*build, "-f", DEPLOY / "Dockerfile", ROOT], check=True, timeout=900, capture_output=True
        )
        stack.callback(subprocess.run, ["docker", "rmi", image], check=False, capture_output=True)
        subprocess.run([SCRIPT, "image", image], check=True, timeout=300)
        postgres = stack.enter_context(cluster()).make_database()
        port = stack.enter_context(_forwarded(Path(postgres.partition("host=")[2]) / ".s.PGSQL.5432"))
        database = postgres.partition("?")[0].replace("@/", f"@{host()}:{port}/")
        repository = stack.enter_context(_served_repository(directory / "www"))
        records = directory / "records"
        records.mkdir()
        os.chown(records, _USER, _USER)
        for parent in records.parents:
            parent.chmod(parent.stat().st_mode | 0o011)
        _write_overlay(directory / "overlay", fleet.namespace, image, sandbox_image, repository, records)
        subprocess.run(["kubectl", "create", "namespace", fleet.namespace], check=True, capture_output=True)
        stack.callback(
            subprocess.run,
            ["kubectl", "delete", "namespace", fleet.namespace, "--timeout=180s"],
            check=False,
            capture_output=True,
        )
        _make_secrets(fleet, database, directory)
        fleet.kubectl("apply", "-k", str(directory / "overlay"))
        for component in ("daemon", "worker"):
            fleet.kubectl("rollout", "status", f"deployment/ringfence-{component}", "--timeout=180s")
        yield fleet


def _write_overlay(
    overlay: Path, namespace: str, image: str, sandbox_image: str, repository: str, records: Path
) -> None:
    """The base, with the image, an agent that waits, records in a directory, and what an old server lacks left out."""
    volume = {"name": "records", "hostPath": {"path": str(records)}, "persistentVolumeClaim": None}
    scripted = {"name": "script", "configMap": {"name": "ringfence-fleet"}}
    mount = {"name": "script", "mountPath": "/etc/ringfence"}

    def deployment(component: str, **spec: Any) -> dict[str, Any]:
        metadata = {"name": f"ringfence-{component}"}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"template": {"spec": spec}},
        }

    def without(kind: str, version: str, name: str) -> dict[str, Any]:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "$patch": "delete"}

    patches = [
        without("PodDisruptionBudget", "policy/v1", "ringfence-worker"),
        without("PersistentVolumeClaim", "v1", "ringfence-records"),
        without("Namespace", "v1", "ringfence"),
        deployment("daemon", volumes=[volume]),
        deployment(
            "worker", volumes=[volume, scripted], containers=[{"name": "worker", "volumeMounts": [mount]}]
        ),
    ]
    name, _, tag = image.rpartition(":")
    overlay.mkdir()
    kustomization = {
        "namespace": namespace,
        "resources": [os.path.relpath(DEPLOY / "kubernetes/base", overlay.resolve())],
        "images": [{"name": "registry.example.com/ringfence", "newName": name, "newTag": tag}],
        "configMapGenerator": [
            {"name": "ringfence-fleet", "behavior": "replace", "files": ["ringfence.yaml", "holds.yaml"]}
        ],
        "patches": [{"patch": json.dumps(each)} for each in patches],
    }
    (overlay / "kustomization.yaml").write_text(json.dumps(kustomization))
    (overlay / "holds.yaml").write_text(json.dumps(_HOLDS))
    agent = {
        "repository": {"url": repository, "depth": 0},
        "prompt": "Wait, then write a file.",
        "run": {"model": "scripted:/etc/ringfence/holds.yaml", "verify": "test -s written"},
    }
    sandbox = {"backend": "kubernetes", "image": sandbox_image, "mode": "clone", "memory": "256m", "cpus": 1}
    base = (DEPLOY / "kubernetes/base/ringfence.yaml").read_text()
    more = {"sandbox": sandbox, "agents": {"holds": agent}}
    lines = (f"{key}: {json.dumps(value)}" for key, value in more.items())
    (overlay / "ringfence.yaml").write_text("\n".join((base, *lines, "")))


def _make_secrets(fleet: NodeFleet, database: str, directory: Path) -> None:
    fleet.kubectl("create", "secret", "generic", "ringfence-database", f"--from-literal=url={database}")
    key, public = directory / "journal-ed25519", directory / "journal-ed25519.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", public], check=True)
    files = [f"--from-file={file}" for file in (key, public)]
    fleet.kubectl("create", "secret", "generic", "ringfence-signing-key", *files)


@contextmanager
def _forwarded(path: Path) -> Iterator[int]:
    """Forward connections of pods to a Unix socket; yields the port."""
    listener = socket.create_server((host(), 0))

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, target):
                each.close()

    def accept() -> None:
        while True:
            try:
                outer, _ = listener.accept()
            except OSError:
                return
            inner = socket.socket(socket.AF_UNIX)
            inner.connect(str(path))
            for pair in ((outer, inner), (inner, outer)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@contextmanager
def _served_repository(directory: Path) -> Iterator[str]:
    """Serve a git repository of one commit over HTTP; yields its address."""
    work, bare = directory / "work", directory / "shop.git"
    git = ["git", "-c", "user.name=tests", "-c", "user.email=tests@example.com"]
    subprocess.run([*git, "init", "-q", work], check=True)
    (work / "README").write_text("a shop\n")
    subprocess.run([*git, "-C", work, "add", "."], check=True)
    subprocess.run([*git, "-C", work, "commit", "-qm", "first"], check=True)
    subprocess.run([*git, "clone", "-q", "--bare", work, bare], check=True)
    subprocess.run([*git, "-C", bare, "update-server-info"], check=True)
    handler = partial(_Quiet, directory=str(directory))
    with http.server.ThreadingHTTPServer((host(), 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://{host()}:{server.server_address[1]}/shop.git"
        server.shutdown()
        thread.join()
    shutil.rmtree(directory)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log nothing."""
