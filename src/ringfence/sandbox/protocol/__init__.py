"""The host's end of the stream: session, flow control, channels, files."""
