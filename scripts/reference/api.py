"""docs/reference/api.md, from the OpenAPI description of the API."""

from pathlib import Path
from typing import Any

from reference.markdown import code, table
from ringfence.fleet.api.app import create_app
from ringfence.fleet.api.context import ApiContext
from ringfence.fleet.api.error_responses import RESPONSES

_HEAD = """\
# HTTP API

The dashboard, `ringfence job`, `fleet` and `inbox`, and your own programs use one HTTP API. OpenAPI describes it at
`/openapi.json`. The daemon serves it:

- on the Unix socket `fleet/daemon.sock` of the state directory, which only its owner can open, without a token;
- over TCP at `fleet.api.address`, for requests with a token.

```sh
curl --unix-socket ~/.local/state/ringfence/fleet/daemon.sock http://fleet/v1/status
curl -H "Authorization: Bearer $RINGFENCE_TOKEN" https://fleet.example.com/v1/status
```

A job is named by its id or the end of it, a run by its id or the beginning of its last eight digits. Times are in UTC.
Later versions may add fields to responses. Lists are paged by `before`: the id of the last entry of the page before.

## Access over TCP

`ringfence fleet token create NAME --scope SCOPE` prints a token once; only its SHA-256 digest is stored. A token has one
of three scopes, each of which includes the ones before it: `read`, `act` (start, cancel, retry and answer jobs, apply or
reject their changes), and `admin` (agents, schedules, workers, tokens, removal of jobs, reload, end of the daemon, and
the runs and loops of the machine that belong to no job).

- Ten wrong tokens in a minute from one address (of IPv6: from one /64 network) are answered with 429 and `Retry-After`.
- `Host` must be `fleet.api.address` or a name in `fleet.api.hosts`, and so must `Origin`, where a browser sends it. No
  response allows another origin, and a body must be `application/json`, which a form of another site cannot send.
- Requests that change something are logged with the name of the token.

The server has no TLS. Have it listen on 127.0.0.1, and put a reverse proxy with TLS before it, such as Caddy:

```text
fleet.example.com {
    reverse_proxy 127.0.0.1:8740
}
```

```yaml
fleet:
  api: {address: "127.0.0.1:8740", hosts: [fleet.example.com]}
```

From another machine, commands take the address and the token:

```sh
export RINGFENCE_TOKEN=rft_...
ringfence job ls --server https://fleet.example.com
```

Instead of the variable, the file `token` beside your own `ringfence.yaml` can hold the token, if only you can read it.
`http://` is accepted for 127.0.0.1 only, so that no token travels in plain text.
"""
_CHANGES = """\
## Changes

`/v1/changes` sends server-sent events within 0.3 s of a change: `job` with `{"id", "state", "agent"}`, and `agent`,
`schedule`, `worker` and `inbox` with `{"id"}`. After `reset` more has changed than can be listed: read everything
again.
Lines that begin with a colon only show that the connection is alive. The database is read only while a client listens.
"""
_REFUSED = """\
## Refusals

A refusal is `{"error": {"message": ..., "exit_code": ...}}`, with the exit code of a command that sent the request.
"""


def page() -> str:
    """The page: the operations, refusals, and the fields of bodies and responses."""
    described = create_app(ApiContext(Path())).openapi()
    return "\n".join(
        [
            _HEAD,
            "## Operations\n",
            table(("method", "path", "scope", "does", "takes", "responds"), _operations(described)),
            "`/metrics` has metrics for Prometheus (scope `read`).\n",
            _CHANGES,
            _REFUSED,
            table(
                ("status", "why"), [(status, answer["description"]) for status, answer in RESPONSES.items()]
            ),
            "## Bodies and responses\n",
            table(("name", "is", "fields"), _schemas(described["components"]["schemas"])),
        ]
    )


def _operations(described: dict[str, Any]) -> list[tuple[str, ...]]:
    paths: dict[str, dict[str, dict[str, Any]]] = described["paths"]
    return [
        (
            method.upper(),
            code(_path(path, each)),
            ", ".join(each["security"][0]["token"]),
            _paragraphs(each.get("description", "")),
            _given(each),
            _answers(each),
        )
        for path, methods in sorted(paths.items())
        for method, each in methods.items()
    ]


def _paragraphs(text: str) -> str:
    return " ".join(text.split())


def _path(path: str, operation: dict[str, Any]) -> str:
    """The path, with the words that a part of it may be."""
    for each in operation.get("parameters", ()):
        words = each["schema"].get("enum", ())
        if each["in"] == "path" and words:
            path = path.replace(f"{{{each['name']}}}", "|".join(words))
    return path


def _given(operation: dict[str, Any]) -> str:
    names = [code(each["name"]) for each in operation.get("parameters", ()) if each["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return ", ".join([*names, *([_named(body)] if body else [])])


def _answers(operation: dict[str, Any]) -> str:
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            kinds = [_kind(name, kind.get("schema", {})) for name, kind in answer.get("content", {}).items()]
            return f"{status} {', '.join(dict.fromkeys(kinds))}"
    return ""


def _kind(media: str, schema: dict[str, Any]) -> str:
    return _named(schema) or ("`null`" if media == "application/json" else media)


def _named(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_named, schema["anyOf"])))
    if schema.get("type") == "array":
        return f"list of {_named(schema['items'])}"
    return {"string": "text", "object": "object"}.get(schema.get("type", ""), "")


def _schemas(schemas: dict[str, dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [
        (code(name), schema.get("description", ""), ", ".join(map(code, schema["properties"])))
        for name, schema in schemas.items()
        if "properties" in schema and not name.startswith(("HTTP", "Validation"))
    ]
