"""A process that has everything loaded, from which commands start by fork: `ringfence standby`.

What a command's own process imports of this (`place`, `asking`, `following`, `interpreter`) is of the standard
library's builtin parts only: it has to cost less than it saves, and next to nothing where there is no standby.
"""
