"""Models whose fields are derived from the options of `DecodeParams`, where each is declared once."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, Field, create_model

from simsd.messages.options import Option

ModelT = TypeVar("ModelT", bound=BaseModel)


def with_options(options: Iterable[Option], may_be_absent: bool) -> Callable[[type[ModelT]], type[ModelT]]:
    """Return a class decorator that adds a field for each option, with its type, bounds and help.

    A field that the class declares itself is kept. If options may be absent, the default of each is None; else it is
    the option's own.
    """

    def add(model: type[ModelT]) -> type[ModelT]:
        fields: dict[str, Any] = {}
        for option in options:
            if option.name not in model.model_fields:
                kind, default = (option.kind | None, None) if may_be_absent else (option.kind, option.default)
                bounds: dict[str, Any] = {"ge": option.low, "le": option.high, "gt": option.above}
                fields[option.name] = (kind, Field(default, description=option.help, **bounds))
        derived: type[ModelT] = create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **fields
        )
        return derived

    return add
