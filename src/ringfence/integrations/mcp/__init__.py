"""An MCP server whose tools are sandboxes: `ringfence mcp`.

| | holds |
|---|---|
| `arguments` | what a client may send to each tool, with its bounds |
| `sandbox` | one open sandbox: a recorded run that lasts until its client closes it |
| `registry` | the sandboxes of each session, their handles and limits |
| `process` | a process inside with its kept output |
| `tools` | what each tool does |
| `server` | the protocol, by the official library; over stdio |
| `http` | the same over HTTP on the loopback, with tokens |
"""
