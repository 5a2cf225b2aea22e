"""The forward proxy, which lets processes inside reach web hosts by rules, and refuses all others with a reason."""
