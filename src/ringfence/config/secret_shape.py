"""The forms of well-known keys and tokens, as their issuers document them."""

KNOWN_SHAPES = (
    r"(?<![A-Za-z0-9])(?:"
    r"sk-(?:ant-|proj-|svcacct-|or-)[A-Za-z0-9_-]{16,}|sk-[A-Za-z0-9]{32,}"
    r"|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])|AIza[A-Za-z0-9_-]{35}|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|npm_[A-Za-z0-9]{36}|pypi-AgE[A-Za-z0-9_-]{50,}|hf_[A-Za-z0-9]{30,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{50,}|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\."
    r")|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
)
"""A regular expression that matches the beginning of such a key or token."""
