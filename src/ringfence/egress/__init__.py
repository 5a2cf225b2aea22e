"""The gate: the only ways out of a sandbox. The host serves each of them over the sandbox's single stream.

Every connection must be granted in advance; it is checked when it is made, and recorded before it has an effect.
"""
