"""What every source of secrets promises."""

from typing import Protocol

from ringfence.secret.value import SecretValue


class SecretSource(Protocol):
    """Gives one secret, as often as it is asked.

    Nothing it raises, logs or returns in an error shows the secret, whole or in part.
    """

    async def read(self) -> SecretValue:
        """The secret as it is now.

        Raises:
            AuthenticationFailed: It cannot be had; the text names the secret, its source and what to do.
            InfrastructureFault: What gives it cannot be reached or started; another time it may.
        """
        ...
