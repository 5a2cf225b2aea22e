"""Container fences: Docker, Podman and gVisor behind one engine interface."""
