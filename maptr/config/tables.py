"""What a table of the configuration is in Python: a class with a field for each key, which is all that names the key.

Like frozen dataclasses, but made in a tenth of the time, for every start of a server waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform

if TYPE_CHECKING:
    from maptr.config.values import Kind

REQUIRED: Any = object()  # as a default: the key must be given


class Field(NamedTuple):
    """One field: a value read as ``kind``, a ``table`` below, each table of an ``array``; or none of them, no key.

    ``key`` is "" where it is the field's own name. ``make`` gives the default, which ``default`` is where it is one.
    """

    make: Callable[[], Any]
    default: Any = None
    kind: Kind[Any] | None = None
    table: type[Table] | None = None
    array: type[Table] | None = None
    key: str = ""


def setting(kind: Kind[Any], default: Any = REQUIRED) -> Any:
    """A key that is read as ``kind``; without a default it must be given."""
    return Field(lambda: default, default, kind=kind)


def section(table: type[Table]) -> Any:
    """A table below this one."""
    return Field(table, table=table)


def sections(key: str, table: type[Table]) -> Any:
    """An array of tables, ``[[key]]``."""
    return Field(tuple, (), array=table, key=key)


def about(make: Callable[[], Any]) -> Any:
    """What no key says; equal configurations may differ in it."""
    return Field(make)


@dataclass_transform(frozen_default=True)
class Table:
    """The values of one table, in the order of its fields or by name. Never changed: ``replace`` makes another."""

    fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        cls.fields = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}

    def __init__(self, *values: Any, **named: Any) -> None:
        given = dict(zip(self.fields, values, strict=False)) | named
        for name, field in self.fields.items():
            value = given.pop(name) if name in given else field.make()
            if value is REQUIRED:
                raise TypeError(f"{type(self).__name__} needs {name}")
            self.__dict__[name] = value
        if given or len(values) > len(self.fields):
            raise TypeError(f"{type(self).__name__} has no {', '.join(given) or 'so many values'}")

    def replace(self, **changes: Any) -> Self:
        """The same with other values for some fields."""
        return type(self)(**(self.__dict__ | changes))

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name, field in self.fields.items() if is_key(field))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Table) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name, field in self.fields.items() if is_key(field))
        return f"{type(self).__name__}({', '.join(values)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is not changed; replace makes another")

    __delattr__ = __setattr__  # type: ignore[assignment]


def is_key(field: Field) -> bool:
    """False for what no key says."""
    return bool(field.kind or field.table or field.array)
