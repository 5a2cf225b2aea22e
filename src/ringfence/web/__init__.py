"""The dashboard: pages rendered on the server, which read everything through the HTTP API of the fleet."""

from ringfence.web.app import create_dashboard
from ringfence.web.client import ApiClient
from ringfence.web.session import Sessions

__all__ = ["ApiClient", "Sessions", "create_dashboard"]
