"""What every container is, whichever engine makes it: hardening, limits, and how it ends."""
