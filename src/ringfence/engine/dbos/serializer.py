"""What DBOS keeps is JSON: its own default would run code out of the database."""

import json
from typing import Any

from dbos import Serializer


class WorkflowFailed(Exception):
    """What a workflow raised, as it was kept."""


class JsonSerializer(Serializer):
    """JSON for values, and the text of errors."""

    def serialize(self, data: Any) -> str:
        """As JSON."""
        if isinstance(data, BaseException):
            return json.dumps({"error": f"{type(data).__name__}: {data}"})
        return json.dumps({"value": data})

    def deserialize(self, serialized_data: str) -> Any:
        """From JSON."""
        kept = json.loads(serialized_data)
        return WorkflowFailed(kept["error"]) if "error" in kept else kept["value"]

    def name(self) -> str:
        """As it is noted beside each value."""
        return "ringfence_json"
