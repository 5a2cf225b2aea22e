"""Tools for tests of programs that use Ringfence. Each part is a module of its own; importing this imports none."""
