"""The program that runs inside a sandbox: standard library only, Python 3.9 or newer, sent over the stream at start.

The modules here import as little as they can (`posix` rather than `os`, `_socket` rather than `socket`, no
`json`, no `enum`): each import costs every sandbox milliseconds of start and megabytes of memory.
`frames` is shared with the host.
"""
