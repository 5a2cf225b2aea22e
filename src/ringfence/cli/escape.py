"""Text that comes from an agent, made harmless for a terminal: as `ringfence.escape` does it for reports, too."""

from ringfence.escape import safe_json, visible

__all__ = ["safe_json", "visible"]
