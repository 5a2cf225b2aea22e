"""The steps of `make release-check`."""
