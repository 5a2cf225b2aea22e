"""Reports as they are kept between steps."""

from typing import Any

from pydantic import TypeAdapter

from ringfence.check import Report

_REPORT = TypeAdapter(Report)


def dumped(report: Report) -> Any:
    """As JSON."""
    return _REPORT.dump_python(report, mode="json")


def loaded(kept: Any) -> Report:
    """From it."""
    return _REPORT.validate_python(kept)
