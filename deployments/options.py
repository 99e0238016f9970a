"""Models whose fields are options of `DecodeParams`, which says once what each takes."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, Field, create_model

from simsd.messages.options import Option

ModelT = TypeVar("ModelT", bound=BaseModel)


def with_options(options: Iterable[Option], may_be_absent: bool) -> Callable[[type[ModelT]], type[ModelT]]:
    """A class decorator: a field for each option, with its type, bounds and help; fields of the class itself stay.

    Where an option may be absent, None is its default and stands for that; else the default is the option's own.
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
