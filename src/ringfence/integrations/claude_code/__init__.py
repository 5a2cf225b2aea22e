"""Configures `claude` on this machine to work in sandboxes only: `ringfence init --claude-code`.

| | holds |
|---|---|
| `entries` | what is added to the settings of `claude`, and how it is added to and removed from a document |
| `json_file` | JSON files of a project that are read, changed and replaced without following a link |
| `installation` | a project's three files, and the record of what was added to them |

Measured with claude 2.1.197, 2.1.329 and 2.1.332.
"""

from ringfence.integrations.claude_code.entries import SERVER_NAME
from ringfence.integrations.claude_code.installation import Change, install, remove

__all__ = ["SERVER_NAME", "Change", "install", "remove"]
