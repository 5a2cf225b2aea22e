"""Events that start jobs: webhooks, changes of files, and work from a source."""
