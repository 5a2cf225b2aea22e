"""What the proxy puts inside for programs that do not find it by themselves."""
