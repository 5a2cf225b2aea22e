"""The commands that run something in a sandbox: run, exec, shell, claude and codex."""
