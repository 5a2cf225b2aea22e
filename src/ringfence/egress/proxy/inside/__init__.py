"""Files that are written into the sandbox for programs that do not read proxy variables by themselves."""
