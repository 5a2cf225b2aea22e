"""Opens traces if they are configured. Other modules of this package need the extra `otel` when they are imported."""

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.errors import ConfigurationError
from ringfence.fleet.config.model import TraceSettings

if TYPE_CHECKING:
    from ringfence.fleet.tracing.traces import Traces

_PACKAGES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


def check_installed(settings: TraceSettings | None) -> None:
    """Check that the packages that traces need are installed, if traces are configured.

    Raises:
        ConfigurationError: A package is missing.
    """
    if settings is not None and not all(map(_is_installed, _PACKAGES)):
        raise ConfigurationError(
            "`fleet.traces` needs OpenTelemetry's packages, and they are not installed: pip install 'ringfence[otel]', "
            "or remove the key"
        )


def open_traces(settings: TraceSettings | None, *, fleet: str, log: Callable[[str], None]) -> "Traces | None":
    """Return the traces of the settings; None if none are configured.

    Raises:
        ConfigurationError: A package is missing.
    """
    if settings is None:
        return None
    check_installed(settings)
    from ringfence.fleet.tracing.traces import open_collector

    return open_collector(settings, fleet=fleet, log=log)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
