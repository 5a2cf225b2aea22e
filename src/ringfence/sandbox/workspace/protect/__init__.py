"""Files that an agent may not write, and files whose changes are reported or removed."""
