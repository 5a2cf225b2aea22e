"""Time zones by their IANA names."""

import difflib
import warnings
from datetime import tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from ringfence.errors import UsageError

_LONGEST_NAME = 100


def zone(name: str | None) -> ZoneInfo:
    """Return the time zone of a name such as `Europe/Berlin`; without a name, that of the machine.

    Raises:
        UsageError: There is no such time zone, or that of the machine is not known.
    """
    if name is None:
        return _local()
    if len(name) <= _LONGEST_NAME and name in _names():
        return ZoneInfo(name)
    near = _near(name[:_LONGEST_NAME])
    advice = f"did you mean {' or '.join(near)}?" if near else "write one such as Europe/Berlin or UTC"
    raise UsageError(f"there is no time zone {name[:_LONGEST_NAME]!r}; {advice}")


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones())


def _near(name: str) -> list[str]:
    by_spelling = {known.lower(): known for known in _names()}
    by_spelling |= {known.rpartition("/")[2].lower(): known for known in _names() if "/" in known}
    wanted = name.strip().lower().replace(" ", "_")
    close = difflib.get_close_matches(wanted, list(by_spelling), n=3, cutoff=0.75)
    return list(dict.fromkeys(by_spelling[spelling] for spelling in close))


def _local() -> ZoneInfo:
    import tzlocal

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns if it falls back to UTC
        try:
            found: tzinfo = tzlocal.reload_localzone()
        except (LookupError, ValueError, OSError) as exc:
            raise UsageError(
                f"the machine's time zone is not known ({exc}); set `timezone`, such as Europe/Berlin"
            ) from exc
    return found if isinstance(found, ZoneInfo) else ZoneInfo("UTC")
