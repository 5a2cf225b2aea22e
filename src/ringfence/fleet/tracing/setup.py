"""Traces, where they are asked for: the only module that others import before it is known whether the extra is there."""

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.errors import ConfigurationError
from ringfence.fleet.config.model import TraceSettings

if TYPE_CHECKING:
    from ringfence.fleet.tracing.traces import Traces

_NEEDED = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


def check_installed(settings: TraceSettings | None) -> None:
    """See that what traces need is there, if they are asked for.

    Raises:
        ConfigurationError: It is not.
    """
    if settings is not None and not all(map(_is_there, _NEEDED)):
        raise ConfigurationError(
            "`fleet.traces` needs OpenTelemetry's packages, and they are not installed: pip install 'ringfence[otel]', "
            "or take the key out"
        )


def open_traces(settings: TraceSettings | None, *, fleet: str, log: Callable[[str], None]) -> "Traces | None":
    """Traces by the settings; None: nobody asked for any.

    Raises:
        ConfigurationError: As `check_installed`.
    """
    if settings is None:
        return None
    check_installed(settings)
    from ringfence.fleet.tracing.traces import to_collector

    return to_collector(settings, fleet=fleet, log=log)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
