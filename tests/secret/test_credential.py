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


def test_a_key_of_openai_travels_as_bearer():
    """No header of the Messages API goes with it."""
    credential = Credential("api_key", "sk-hunter2", provider="openai")
    assert credential.headers() == {"Authorization": "Bearer sk-hunter2"}


def test_a_login_of_chatgpt_names_its_account():
    """The API asks for it beside the token."""
    credential = Credential("oauth", "token-hunter2", provider="openai", account_id="acc-1")
    assert credential.headers() == {"Authorization": "Bearer token-hunter2", "chatgpt-account-id": "acc-1"}


def test_an_account_that_no_header_can_carry_is_refused():
    """It comes from a file, and a line end would forge a header."""
    with pytest.raises(AuthenticationFailed, match="copy it again"):
        Credential("oauth", "token-hunter2", provider="openai", account_id="a\r\nX-Evil: 1")
