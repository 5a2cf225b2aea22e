"""Whose models a run may ask, as whom, and how much: from it comes the run's one gateway."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from ringfence.egress.gateway.budget import Budget
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.policy import ModelPolicy
from ringfence.egress.gateway.provider import BASE_URL_VARIABLES, ModelProvider, base_url_of
from ringfence.egress.gateway.upstream import check_base_url
from ringfence.frozen import frozen
from ringfence.model.prices import Price, PriceList
from ringfence.model.registry import needs_credential, script_of
from ringfence.secret import Credential, Provider

_PLACEHOLDER = "sk-ant-scripted-dummy"
"""A script takes any credential."""


@frozen
class ModelAccess:
    """What a run's gateway is made of. Plain data."""

    model: str
    """Name of a model, or `scripted:FILE`: then every request is answered from the script."""
    credentials: Sequence[Credential] = ()
    """One for each provider that may be asked; none for a script."""
    tokens: int | None = None
    """Of all requests together; None is no limit."""
    cost_usd: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    """Beside or in place of those in the table; those of the script too."""
    base_urls: Mapping[Provider, str] = field(default_factory=dict)
    """None for a provider: its variable of the environment, else the public one."""
    policy: ModelPolicy = field(default_factory=ModelPolicy)
    turns: int | None = None
    """Requests of the agent that may be answered; None is no limit."""
    agent_is_inside: bool = False
    """Whether the agent asks from inside, as clients do, as against our own loop."""
    renewals: Mapping[Provider, Callable[[], Awaitable[Credential]]] = field(default_factory=dict)
    """What gives a provider's credential as it is at each request, for those that end. Stays in this process."""

    @cached_property
    def budget(self) -> Budget:
        """What may be used, and what was."""
        return Budget(
            tokens=self.tokens, cost_usd=self.cost_usd, pricing=PriceList(self.prices), turns=self.turns
        )

    @cached_property
    def gateway(self) -> Gateway:
        """The gateway, always the same one: what is used inside and outside counts together."""
        return Gateway(
            self._provided(), policy=self.policy, budget=self.budget, agent_is_inside=self.agent_is_inside
        )

    def checked(self) -> Self:
        """This one, after its base URLs were seen to be some: sooner than the first request would.

        Raises:
            UsageError: One is none.
        """
        for each in self.credentials if needs_credential(self.model) else ():
            given = self.base_urls.get(each.provider)
            source = "" if given else BASE_URL_VARIABLES[each.provider]
            check_base_url(given or base_url_of(each), source=source)
        return self

    def _provided(self) -> list[ModelProvider]:
        if not needs_credential(self.model):
            return _scripted(script_of(self.model))
        return [
            ModelProvider(
                each.provider,
                self.renewals.get(each.provider, each),
                each.kind,
                self.base_urls.get(each.provider) or base_url_of(each),
            )
            for each in self.credentials
        ]

    def without_credentials(self) -> "ModelAccess":
        """The same for another process of ours, which takes leases of its own."""
        return replace(self, credentials=(), renewals={})


def _scripted(path: Path) -> list[ModelProvider]:
    from ringfence.model.scripted.upstream import ScriptedUpstream

    upstream = ScriptedUpstream(
        path
    )  # one for all APIs: whichever is called, the script is one line of turns
    providers: tuple[Provider, ...] = ("anthropic", "openai")
    return [
        ModelProvider(each, Credential("api_key", _PLACEHOLDER, provider=each), "api_key", upstream)
        for each in providers
    ]
