"""References in texts, and passwords that are none."""

import pytest

from ringfence.config.environment import expanded, has_password


@pytest.mark.parametrize(
    ("url", "is_plain"),
    [
        ("postgresql://me:word@host/db", True),
        ("postgresql://me:word@${HOST}/db", True),
        ("postgresql://me:wo${RD}@host/db", True),
        ("postgresql://host/db?user=me&password=word", True),
        ("postgresql://host/db?sslpassword=word", True),
        ("postgresql://me:$${WORD}@host/db", True),
        ("postgresql://me@host:5432/db", False),
        ("postgresql://me:${WORD}@host/db", False),
        ("postgresql://me:${WORD:-other}@host/db", False),
        ("postgresql://${ME:-me}@host/db?sslmode=verify-full", False),
        ("postgresql://host/db?password=${WORD}", False),
        ("${DATABASE}", False),
    ],
)
def test_a_password_is_found_where_it_is_written_out(url: str, is_plain: bool):
    """Also where something else of the address, or a part of it, is a reference."""
    assert has_password(url) is is_plain


def test_variables_are_put_in():
    """With defaults; a secret's reference and a doubled dollar sign stay."""
    found = expanded("$${A} ${A} ${B:-b} ${secret:C}", {"A": "a"})
    assert found == "${A} a b ${secret:C}"
