"""Defines a run's access to models: which models, with which credentials and within which limits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path

from ringfence.egress.gateway.budget import Budget
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.policy import ModelPolicy
from ringfence.egress.gateway.provider import BASE_URL_VARIABLES, ModelProvider, base_url_of
from ringfence.egress.gateway.upstream import check_base_url
from ringfence.errors import PolicyRefused
from ringfence.frozen import frozen
from ringfence.model.prices import Price, PriceList
from ringfence.model.registry import check_name, needs_credential, read_model, script_of
from ringfence.secret import Credential, Provider

Renewal = Callable[[], Awaitable[Credential]]
"""Returns the current credential at the time of a request."""
_PLACEHOLDER = "sk-ant-scripted-dummy"
"""A dummy credential, as a script accepts any."""


@frozen
class ModelAccess:
    """Plain data from which a run's gateway is created."""

    model: str
    """Name of a model, or `scripted:FILE` to answer every request from the script."""
    credentials: Sequence[Credential] = ()
    """Credentials, one for each provider that may be requested; none for a script, or before they are leased."""
    tokens: int | None = None
    """Limit for all requests together; None is no limit."""
    cost_usd: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict)
    """Prices in addition to, or in place of, those in the table and of the script."""
    base_urls: Mapping[Provider, str] = field(default_factory=dict)
    """Base URLs by provider; by default the one in its environment variable, else the public one."""
    policy: ModelPolicy = field(default_factory=ModelPolicy)
    turns: int | None = None
    """Requests of the agent that may be answered; None is no limit."""
    provider: Provider | None = None
    """Provider of the models that the run's own agent requests; None: only the user's processes request models."""
    agent_is_inside: bool = False
    """Whether that agent is an agent CLI inside, as opposed to the built-in loop."""
    renewals: Mapping[Provider, Renewal] = field(default_factory=dict)
    """Functions that return credentials that expire. They stay in this process."""

    @property
    def needs_credential(self) -> bool:
        """Whether requests need a credential; requests to a script do not."""
        return needs_credential(self.model)

    @property
    def name(self) -> str:
        """The model's name in requests."""
        return self._known[0]

    @property
    def all_prices(self) -> Mapping[str, Price]:
        """The prices, including those of the script."""
        return {**self._known[1], **self.prices}

    @cached_property
    def _known(self) -> tuple[str, Mapping[str, Price]]:
        return read_model(self.model)

    @cached_property
    def gateway(self) -> Gateway:
        """The gateway; a single one, so that usage inside and outside is counted together."""
        budget = Budget(
            tokens=self.tokens,
            cost_usd=self.cost_usd,
            pricing=PriceList(self.all_prices),
            turns=self.turns,
        )
        return Gateway(
            self._provided(), policy=self.policy, budget=budget, agent_is_inside=self.agent_is_inside
        )

    def check(self) -> None:
        """Check the model before a run begins, rather than at its first request.

        Raises:
            UsageError: No model is named.
            ConfigurationError: The model's script cannot be read.
            PolicyRefused: The model is not allowed.
        """
        check_name(self.model)
        if not self.policy.allows(self.name):
            raise PolicyRefused(
                f"the model {self.name!r} is not among egress.models ({', '.join(self.policy.models)}); "
                "name another, or add it there",
                rule="model-allowed",
            )

    def with_credentials(
        self, credentials: Sequence[Credential], renewals: Mapping[Provider, Renewal]
    ) -> "ModelAccess":
        """Return the same access with credentials.

        Raises:
            UsageError: The base URL of a provider is not valid.
        """
        for each in credentials if self.needs_credential else ():
            given = self.base_urls.get(each.provider)
            source = "" if given else BASE_URL_VARIABLES[each.provider]
            check_base_url(given or base_url_of(each), source=source)
        return replace(self, credentials=credentials, renewals=renewals)

    def _provided(self) -> list[ModelProvider]:
        if not self.needs_credential:
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


def _scripted(path: Path) -> list[ModelProvider]:
    from ringfence.model.scripted.upstream import ScriptedUpstream

    upstream = ScriptedUpstream(path)  # one for all APIs, as the script is a single sequence of turns
    providers: tuple[Provider, ...] = ("anthropic", "openai")
    return [
        ModelProvider(each, Credential("api_key", _PLACEHOLDER, provider=each), "api_key", upstream)
        for each in providers
    ]
