"""`value`: a frozen, slotted dataclass that is cheap to make."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import TypeVar, cast, dataclass_transform

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
    names = [field.name for field in fields(made)]
    scope: dict[str, object] = {f"set_{name}": made.__dict__[name].__set__ for name in names}
    scope |= {f"default_{field.name}": field.default for field in fields(made)}
    parameters = "".join(
        f", {field.name}" + ("" if field.default is MISSING else f"=default_{field.name}") for field in fields(made)
    )
    body = "; ".join(f"set_{name}(self, {name})" for name in names) or "pass"
    exec(f"def __init__(self{parameters}): {body}", scope)
    init = cast("type[object]", scope["__init__"])
    setattr(made, "__init__", init)  # noqa: B010
    return made
