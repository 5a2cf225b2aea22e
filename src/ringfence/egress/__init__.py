"""The gate: the only ways out of a sandbox, each of them served by the host over the one stream.

What passes is named beforehand, checked at the moment it happens, and in the record before it has an effect.
"""
