"""A container engine for those inside, filtered: an HTTP API that passes on a short list of calls and no other.

Nothing that came from inside is passed on as it came: a request is parsed, decided upon, journaled and built anew.
"""
