"""The host end of the stream: session, flow control, channels, files."""
