from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import get_args

import pytest

from rillet.operators import Delta, Done, TextDelta, ToolCall
from rillet.operators.value import maker, value


@value
class Point:
    """A value for these tests."""

    x: int
    y: int = 5


@value
class Pixel:
    """One of the same shape."""

    x: int
    y: int = 5


def test_made_by_position_by_name_and_by_default() -> None:
    assert Point(1, 2) == Point(x=1, y=2) == Point(y=2, x=1)
    assert Point(1) == Point(1, 5)


@pytest.mark.parametrize("arguments", [{}, {"x": 1, "z": 2}])
def test_wrong_fields_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        Point(**arguments)


def test_equal_only_to_its_own_type() -> None:
    others: list[object] = [Pixel(1), (1, 5), Point(2)]
    assert Point(1) not in others
    assert Point(1) in [*others, Point(1)]


def test_hashable_where_its_fields_are() -> None:
    assert {Point(1), Point(1), Point(2)} == {Point(1), Point(2)}
    with pytest.raises(TypeError):
        hash(ToolCall(0, "", "", {}, ""))


def test_frozen_and_slotted() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        point.z = 2  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")
    assert point == Point(1)


def test_match_able_by_position() -> None:
    match TextDelta("a", 2):
        case TextDelta(text, choice):
            assert (text, choice) == ("a", 2)
        case _:
            pytest.fail("no match")


def test_shown_with_its_fields() -> None:
    assert repr(Point(1)) == "Point(x=1, y=5)"
    assert repr(Done()) == "Done()"


def test_copied_pickled_and_replaced_like_any_dataclass() -> None:
    delta = TextDelta("a", 2)
    assert copy.deepcopy(delta) == delta
    assert pickle.loads(pickle.dumps(delta)) == delta
    assert dataclasses.replace(delta, choice=3) == TextDelta("a", 3)
    assert dataclasses.asdict(delta) == {"text": "a", "choice": 2}


def test_what_a_maker_makes_is_what_the_class_makes() -> None:
    make = maker(Point)
    assert make(1) == make(x=1, y=5) == Point(1)
    assert type(make(1)) is Point
    assert hash(make(1)) == hash(Point(1))
    assert repr(make(1)) == "Point(x=1, y=5)"
    assert pickle.loads(pickle.dumps(maker(TextDelta)))("a") == TextDelta("a")
    with pytest.raises(TypeError):
        make(z=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("cls", get_args(Delta))
def test_every_delta_has_a_maker(cls: type[Delta]) -> None:
    fields = range(len(dataclasses.fields(cls)))
    assert maker(cls)(*fields) == cls(*fields)


def test_a_field_may_have_any_name() -> None:
    @value
    class Named:
        made: int
        Draft: int
        set_made: int = 3

    assert maker(Named)(1, Draft=2) == Named(1, 2) == Named(1, 2, 3)


def test_a_subclass_is_made_as_it_likes() -> None:
    class Cited(TextDelta):
        __slots__ = ()

    assert type(maker(Cited)("a")) is Cited


def test_what_a_maker_makes_is_frozen_and_slotted() -> None:
    point = maker(Point)(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    assert not hasattr(point, "__dict__")
