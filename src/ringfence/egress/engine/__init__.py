"""A container engine for processes inside, filtered: an HTTP API that forwards a short list of calls and no other.

No request is forwarded as it was received: it is parsed, decided upon, logged and rebuilt.
"""
