"""The daemon's interface, asked at random: it is as it is described."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.cases import examples
from tests.fleet.daemon.test_api import daemon_of

from ringfence.fleet.api.app import create_local_app
from ringfence.fleet.api.context import ApiContext

pytestmark = pytest.mark.slow
_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    """The description of one, and whom to ask."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("described")
        for name in ("STATE", "CONFIG"):
            patch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
        made = daemon_of(home)
        made.is_ready = True
        yield schemathesis.openapi.from_asgi("/openapi.json", create_local_app(ApiContext.of_daemon(made)))
        made.database.close()


_OPERATIONS = [
    "GET /v1/status",
    "GET /healthz",
    "GET /readyz",
    "GET /v1/diff",
    "POST /v1/reload",
    "POST /v1/forget",
    "POST /v1/down",
    "GET /v1/agents",
    "GET /v1/agents/{name}",
    "POST /v1/agents/{name}/jobs",
    "GET /v1/agents/{name}/jobs",
    "POST /v1/agents/{name}/{action}",
    "GET /v1/jobs",
    "GET /v1/jobs/{reference}",
    "DELETE /v1/jobs/{reference}",
    "GET /v1/jobs/{reference}/attempts",
    "GET /v1/jobs/{reference}/events",
    "GET /v1/jobs/{reference}/record",
    "GET /v1/jobs/{reference}/diff",
    "POST /v1/jobs/{reference}/apply",
    "POST /v1/jobs/{reference}/reject",
    "POST /v1/jobs/{reference}/cancel",
    "POST /v1/jobs/{reference}/{action}",
    "GET /v1/schedules",
    "GET /v1/schedules/{agent}/{name}/next",
    "POST /v1/schedules/{agent}/{name}/run",
    "POST /v1/schedules/{agent}/{name}/{action}",
    "GET /v1/spend",
    "GET /v1/workers",
    "POST /v1/workers/{reference}/{action}",
    "DELETE /v1/workers/{reference}",
    "GET /v1/runs",
    "GET /v1/runs/{run}",
    "GET /v1/runs/{run}/events",
    "GET /v1/runs/{run}/record",
    "GET /v1/runs/{run}/diff",
    "POST /v1/runs/{run}/apply",
    "POST /v1/runs/{run}/undo",
    "GET /v1/loops",
    "GET /v1/loops/{loop}",
    "GET /v1/doctor",
]


_ENDLESS = "GET /v1/changes"
"""A stream without an end, which no test client reads to the end; test_api_changes.py is about it."""


def _operations(described: schemathesis.BaseSchema) -> dict[str, Any]:
    found: list[Any] = [each.ok() for each in described.get_all_operations() if isinstance(each, Ok)]
    return {operation.label: operation for operation in found}


def test_each_operation_is_tried(described: schemathesis.BaseSchema):
    """The test below knows every operation that there is."""
    assert sorted(_operations(described)) == sorted([*_OPERATIONS, _ENDLESS])


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", _OPERATIONS)
def test_it_is_as_it_is_described(described: schemathesis.BaseSchema, label: str, mode: GenerationMode):
    """Whatever is sent, status and body of the answer are among those that are described; none is an internal error."""
    operation = _operations(described)[label]
    if mode is GenerationMode.NEGATIVE and not any(operation.iter_parameters()):
        return

    @settings(
        max_examples=examples(15), deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        case.call_and_validate(checks=_CHECKS)

    ask()
