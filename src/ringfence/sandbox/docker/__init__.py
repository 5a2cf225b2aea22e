"""Container backends: Docker, Podman and gVisor behind one engine interface. Importing this loads no client."""
