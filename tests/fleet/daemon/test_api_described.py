"""Random requests to the daemon's API, which must answer as its OpenAPI description says."""

from collections.abc import Iterator
from pathlib import Path
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

from ringfence.fleet.api.app import create_app, create_local_app
from ringfence.fleet.api.context import ApiContext

pytestmark = pytest.mark.slow
_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.BaseSchema]:
    """The description of an API, and the application to send requests to."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("described")
        for name in ("STATE", "CONFIG"):
            patch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
        made = daemon_of(home)
        made.is_ready = True
        yield schemathesis.openapi.from_asgi("/openapi.json", create_local_app(ApiContext.of_daemon(made)))
        made.database.close()


_ENDLESS = "GET /v1/changes"
"""A stream without an end, which no test client reads to the end; test_api_changes.py tests it."""
_OPERATIONS = sorted(
    f"{method.upper()} {path}"
    for path, methods in create_app(ApiContext(Path())).openapi()["paths"].items()
    for method in methods
    if f"{method.upper()} {path}" != _ENDLESS
)


def _operations(described: schemathesis.BaseSchema) -> dict[str, Any]:
    found: list[Any] = [each.ok() for each in described.get_all_operations() if isinstance(each, Ok)]
    return {operation.label: operation for operation in found}


def test_each_operation_is_tried(described: schemathesis.BaseSchema):
    """The test below covers every operation of the API."""
    assert sorted(_operations(described)) == sorted([*_OPERATIONS, _ENDLESS])


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", _OPERATIONS)
def test_it_is_as_it_is_described(described: schemathesis.BaseSchema, label: str, mode: GenerationMode):
    """Whatever is sent, the response has a described status and body, and is no internal error."""
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
