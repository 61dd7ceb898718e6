"""`value`: a frozen, slotted dataclass that is cheap to make."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, TypeVar, cast, dataclass_transform

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, slotted dataclass whose constructor writes its slots directly.

    A stream makes two of these for every event. The constructor that `dataclass(frozen=True)` writes looks each
    field up by name through `object.__setattr__`; the slots' own setters take two thirds of its time.

    Args:
        cls: A class with annotated fields; defaults must be immutable.

    Returns:
        The dataclass: equal only to its own type, hashable where its fields are, match-able by position.
    """
    made = dataclass(frozen=True, slots=True)(cls)
    made_fields = fields(cast("type[DataclassInstance]", made))
    scope: dict[str, object] = {f"set_{field.name}": made.__dict__[field.name].__set__ for field in made_fields}
    scope |= {f"default_{field.name}": field.default for field in made_fields}
    parameters = "".join(
        f", {field.name}" + ("" if field.default is MISSING else f"=default_{field.name}") for field in made_fields
    )
    body = "; ".join(f"set_{field.name}(self, {field.name})" for field in made_fields) or "pass"
    exec(f"def __init__(self{parameters}): {body}", scope)
    setattr(made, "__init__", scope["__init__"])  # noqa: B010 - as an assignment, type checkers refuse it
    return made
