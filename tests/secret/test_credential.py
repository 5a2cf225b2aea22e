import pytest

from ringfence.errors import AuthenticationFailed
from ringfence.secret import Credential


def test_the_text_of_a_credential_does_not_show_it():
    """Neither repr nor str, so no log and no traceback does."""
    assert "hunter2" not in f"{Credential('api_key', 'hunter2-hunter2')!r}"


@pytest.mark.parametrize("secret", ["", "two words", "line\n", "größe", "\x00"])
def test_a_secret_that_no_header_can_carry_is_refused(secret: str):
    """The error says what is wrong and does not repeat the secret."""
    with pytest.raises(AuthenticationFailed, match="copy it again") as caught:
        Credential("bearer", secret)
    assert not secret or secret not in str(caught.value).replace("control or non-ASCII characters", "")


def test_a_secret_is_taken_out_of_text():
    """A server that echoes it does not get it into our errors."""
    assert Credential("api_key", "hunter2-hunter2").redact("bad hunter2-hunter2!") == "bad [credential]!"
