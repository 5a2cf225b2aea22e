"""Packs and unpacks tar streams: workspaces for container engines, and copies into and out of a sandbox.

Streams out of a sandbox are hostile. Names that lead out of the target are refused; links are created (in a workspace)
or left out (in a copy), and never followed; set-id bits, owners, devices, fifos and sockets are never unpacked;
headers, depth, entries and bytes are bounded. All calls block.

The standard library reads extended headers as a whole, follows endless chains of headers and of sparse maps, keeps
every header it has read, and accepts a negative size: `TarReader` bounds all of these.
"""
