"""The images by name: what each is for, how large it may be, and what its tools need beyond a plain sandbox."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType

from ringfence.frozen import frozen

_MB = 1000**2  # as engines print sizes


class Target(StrEnum):
    """The images; each is a stage of the recipe of that name."""

    BASE = "base"
    POLYGLOT = "polyglot"
    OPERATOR = "operator"
    AGENTS = "agents"


@frozen
class TargetFacts:
    """What is known of an image before it is built."""

    summary: str
    budget_bytes: int | None = None
    """Its size may not pass this without being told; None: no bound, it holds other people's programs."""
    needs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Tools that do less in a sandbox without capabilities and network, and what they lack there."""


_WAY_OUT = "a way out: an allowed host, or a forwarded service"

TARGETS: Mapping[Target, TargetFacts] = MappingProxyType(
    {
        Target.BASE: TargetFacts(
            "Debian with bash, git, python3, ripgrep, jq, ca-certificates", budget_bytes=200 * _MB
        ),
        Target.POLYGLOT: TargetFacts(
            "base with Node 20, npm, JDK 21, Maven, pip and venv", budget_bytes=750 * _MB
        ),
        Target.OPERATOR: TargetFacts(
            "base with the tools of an operator and a Python for them",
            needs=MappingProxyType(
                {
                    "ping": "nothing where net.ipv4.ping_group_range holds the sandbox's group, else NET_RAW",
                    "tcpdump": "NET_RAW, and an interface to listen on",
                    "traceroute": "nothing by UDP; NET_RAW for -I (ICMP) and -T (TCP)",
                    "nmap": "nothing for -sT; NET_RAW and NMAP_PRIVILEGED=1 for -sS, -sU, -O and raw host discovery",
                    "docker": "an engine: the filtered engine proxy, never the engine's own socket",
                    "curl, wget, dig, nc": _WAY_OUT,
                    "anthropic, httpx, redis (Python)": _WAY_OUT,
                }
            ),
        ),
        Target.AGENTS: TargetFacts("polyglot with the claude and codex programs"),
    }
)
