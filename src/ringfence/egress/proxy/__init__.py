"""The forward proxy: what a process inside may reach on the web, by rules; everything else is refused with a reason."""
