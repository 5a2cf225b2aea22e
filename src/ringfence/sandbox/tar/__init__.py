"""Tar streams: a workspace on its way to a container engine and back, and copies into and out of a sandbox.

What comes out of a sandbox is hostile. Names that lead out of the target are refused; links are made (in a workspace)
or left out (in a copy), and never followed; set-id bits, owners, devices, fifos and sockets never come out; headers,
depth, entries and bytes are bounded. All calls block.

The standard library reads extended headers whole, follows chains of headers and of sparse maps without end, keeps every
header it saw, and believes a negative size: `TarReader` bounds all of these.
"""
