"""A frozen dataclass of ours is one, however it is made."""

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cached_property

import pytest

from ringfence.frozen import frozen


@frozen
class _Ours:
    number: int
    names: tuple[str, ...] = ()
    quiet: str = field(default="", repr=False)
    beside: Mapping[str, int] = field(default_factory=dict, compare=False)

    @cached_property
    def double(self) -> int:
        return self.number * 2


@dataclass(frozen=True)
class _Pythons:
    number: int
    names: tuple[str, ...] = ()
    quiet: str = field(default="", repr=False)
    beside: Mapping[str, int] = field(default_factory=dict, compare=False)


@frozen
class _More(_Ours):
    last: str = "z"


@frozen
class _Own:
    secret: str

    def __repr__(self) -> str:
        return "nothing"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Own)

    def __hash__(self) -> int:
        return 7


def test_it_looks_like_pythons():
    """What is shown, and what is not, is as Python shows it."""
    arguments = (1, ("a",), "s", {"k": 1})
    assert repr(_Ours(*arguments)) == repr(_Pythons(*arguments)).replace("_Pythons", "_Ours")


def test_it_is_a_dataclass():
    """`dataclasses` takes it for one of its own."""
    one = _Ours(1, beside={"k": 1})
    assert is_dataclass(one)
    assert [each.name for each in fields(one)] == ["number", "names", "quiet", "beside"]
    assert asdict(replace(one, number=2)) == {"number": 2, "names": (), "quiet": "", "beside": {"k": 1}}


@pytest.mark.parametrize("name", ["number", "quiet", "unknown"])
def test_it_is_never_changed(name: str):
    """Neither a field nor a name that is none can be set or deleted."""
    one = _Ours(1)
    with pytest.raises(FrozenInstanceError):
        setattr(one, name, 2)
    with pytest.raises(FrozenInstanceError):
        delattr(one, name)
    assert one == _Ours(1)


def test_equal_and_alike():
    """Equal where all fields that are compared are; of another class never, be it a subclass."""
    assert _Ours(1, beside={"k": 1}) == _Ours(1)
    assert hash(_Ours(1, ("a",))) == hash(_Ours(1, ("a",)))
    assert _Ours(1) != _Ours(2)
    assert _Ours(1) != _More(1)
    assert _Ours(1) != _More(1, last="")


def test_what_was_worked_out_is_no_field():
    """A cached property is kept, and makes no difference."""
    one = _Ours(3)
    assert one.double == 6
    assert one == _Ours(3)


def test_a_subclass_has_all_fields():
    """Those of both classes, set once."""
    one = _More(1, last="y")
    assert (one.number, one.last) == (1, "y")
    with pytest.raises(FrozenInstanceError):
        one.last = "x"  # type: ignore[misc]


def test_own_methods_stay():
    """A class that says how it is shown, compared and hashed is asked."""
    one = _Own("s")
    assert (repr(one), one, hash(one)) == ("nothing", _Own("t"), 7)
