"""Enforces NetworkPolicies on the node of `scripts/kubernetes.sh`: Debian has no network plugin that does.

    policies.py plugin         a CNI plugin, chained after `ptp`: a pod's rules are there before its containers run
    policies.py follow STATE   put the rules of all pods in force as policies and labels are now, again and again

A policy that allows nothing in a direction is enforced: connections from or to the pods that it selects are dropped, but
those that begin at the node itself. One that allows something is not enforced in that direction, as its rules are not
read. Nothing is enforced in namespaces whose names begin with `open-`, which stand for clusters that enforce none.
"""

import fcntl
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHAIN = "rf-policy"
OPEN = "open-"
_VERSIONS = ["0.3.1", "0.4.0"]
_PAUSE_S = 1.0


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector of the API selects an object with these labels."""
    return all(
        labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()
    ) and all(_matches(one, labels.get(one["key"])) for one in selector.get("matchExpressions") or ())


def _matches(expression: dict[str, Any], value: str | None) -> bool:
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case _:  # DoesNotExist
            return value is None


def denied(pod: dict[str, Any], policies: list[dict[str, Any]]) -> Iterator[str]:
    """The directions in which policies allow a pod nothing: `Ingress`, `Egress`."""
    metadata = pod["metadata"]
    mine = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == metadata["namespace"]
        and selects(policy["spec"]["podSelector"], metadata.get("labels") or {})
    ]
    for direction in ("Ingress", "Egress"):
        own = [spec for spec in mine if direction in spec["policyTypes"]]
        if own and not any(spec.get(direction.lower()) for spec in own):
            yield direction


class Node:
    """The node's pods, by what the CNI plugin has recorded of them, and its API server.

    Args:
        state: The state directory of `scripts/kubernetes.sh`.
    """

    def __init__(self, state: Path) -> None:
        self._state = state
        self._records = state / "interfaces"
        config = json.loads((state / "kubeconfig").read_text())
        self._server = config["clusters"][0]["cluster"]["server"]
        self._tls = ssl.create_default_context(cafile=str(state / "ca.crt"))
        self._tls.load_cert_chain(state / "admin.crt", state / "admin.key")

    def add(self, container: str, record: dict[str, str]) -> None:
        """Record a pod that gets an interface."""
        self._records.mkdir(exist_ok=True)
        (self._records / container).write_text(json.dumps(record))

    def remove(self, container: str) -> None:
        """Forget a pod whose interface goes."""
        (self._records / container).unlink(missing_ok=True)

    def apply(self) -> None:
        """Replace the rules in force, in one step."""
        with (self._state / "policies.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lines = ["*filter", f":{CHAIN} - [0:0]", *self._rules(), "COMMIT", ""]
            command = ["iptables-restore", "--noflush", "--wait"]
            subprocess.run(command, input="\n".join(lines), text=True, check=True, timeout=30)

    def _rules(self) -> Iterator[str]:
        policies = self._items("/apis/networking.k8s.io/v1/networkpolicies")
        pods = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"]): pod
            for pod in self._items("/api/v1/pods")
        }
        for file in self._records.glob("*"):
            record = json.loads(file.read_text())
            if record["namespace"].startswith(OPEN):
                continue
            pod = pods.get((record["namespace"], record["name"]))
            for direction in denied(pod, policies) if pod else ("Ingress", "Egress"):
                way = "-i" if direction == "Egress" else "-o"
                yield (
                    f"-A {CHAIN} {way} {record['interface']} "
                    "-m conntrack ! --ctstate ESTABLISHED,RELATED -j DROP"
                )

    def _items(self, path: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(self._server + path, context=self._tls, timeout=20) as response:
            items: list[dict[str, Any]] = json.load(response)["items"]
        return items


def plugin() -> None:
    """Serve one call of the Container Network Interface (its specification, version 0.4.0)."""
    command = os.environ["CNI_COMMAND"]
    if command == "VERSION":
        print(json.dumps({"cniVersion": _VERSIONS[-1], "supportedVersions": _VERSIONS}))
        return
    config = json.load(sys.stdin)
    node, container = Node(Path(config["state"])), os.environ["CNI_CONTAINERID"]
    if command == "ADD":
        words = dict(word.split("=", 1) for word in os.environ["CNI_ARGS"].split(";"))
        before = config["prevResult"]
        interface = next(one["name"] for one in before["interfaces"] if not one.get("sandbox"))
        record = {"namespace": words["K8S_POD_NAMESPACE"], "name": words["K8S_POD_NAME"]}
        node.add(container, {**record, "interface": interface})
        node.apply()
        print(json.dumps(before))
    elif command == "DEL":
        node.remove(container)


def follow(state: Path) -> None:
    """Apply policies until this process is ended: they and the labels of pods may change."""
    node = Node(state)
    while True:
        try:
            node.apply()
        except (OSError, subprocess.SubprocessError) as exc:  # the API server is restarted, say
            print(f"policies are as before: {exc}", file=sys.stderr, flush=True)
        time.sleep(_PAUSE_S)


def main(arguments: list[str]) -> int:
    """Do what the arguments say; 2 if they are wrong."""
    os.environ["no_proxy"] = "*"
    match arguments:
        case ["plugin"]:
            try:
                plugin()
            except Exception as exc:  # noqa: BLE001 -- the specification wants every error as JSON
                print(json.dumps({"cniVersion": _VERSIONS[-1], "code": 100, "msg": f"policies: {exc!r}"}))
                return 1
        case ["follow", state]:
            follow(Path(state))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
