"""A ChatGPT login as Codex keeps it: its file, and renewing it so that it never breaks.

Its refresh token can be used once. Two that use the same one, or one that uses it and does not keep the answer, end
the login for everybody. So all processes of this machine renew it one at a time, under a lock, in a process of its own
that a killed run does not take along; who finds it renewed by somebody else takes that.
"""
