"""The backend `kubernetes`: a sandbox is a pod, its guest the first process of a container that is attached to."""
