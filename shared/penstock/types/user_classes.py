"""Classes of the user's program by value, where cloudpickle is not enough.

cloudpickle rebuilds a class from its bases and attributes. That fails for a msgspec Struct, whose metaclass
makes its fields. A class with ``__slots__`` gets a ``__dict__``, and its objects cannot be read by the original
class. Here both kinds are rebuilt correctly, and a process has one class however often it is loaded.
"""

from __future__ import annotations

import inspect
import types
import uuid
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

_CONFIG = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults",
    "forbid_unknown_fields", "weakref", "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip
#: Attributes that defstruct makes itself, or that belong to one class object only.
_MADE = frozenset(
    {"__module__", "__qualname__", "__annotations__", "__slots__", "__dict__", "__weakref__", "__doc__",
     "__match_args__", "__struct_config__", "__struct_fields__", "__struct_defaults__",
     "__struct_encode_fields__", "__post_init__", "__annotate__", "__annotate_func__",
     "__annotations_cache__", "__static_attributes__", "__firstlineno__"}
)  # fmt: skip

_tokens: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_by_token: WeakValueDictionary[str, type] = WeakValueDictionary()


def reduced(cls: Any) -> tuple[Any, ...] | None:
    """The ``pickle`` reduction of a Struct or slotted class: how to make it, then its methods, which may refer
    to it.

    None for a class that cloudpickle rebuilds correctly.
    """
    if isinstance(cls, type(msgspec.Struct)):
        return _struct_reduced(cls)
    if "__slots__" in vars(cls) and not issubclass(cls, tuple):
        return _slots_reduced(cls)
    return None


def _token(cls: type) -> str:
    token = _tokens.setdefault(cls, uuid.uuid4().hex)
    _by_token[token] = cls
    return token


def _slots_reduced(cls: Any) -> tuple[Any, ...]:
    namespace = {
        name: vars(cls)[name]
        for name in ("__slots__", "__module__", "__qualname__", "__doc__")
        if name in vars(cls)
    }
    namespace.setdefault("__qualname__", cls.__qualname__)
    arguments = (_token(cls), type(cls), cls.__name__, cls.__bases__, namespace)
    methods = {k: v for k, v in vars(cls).items() if k not in namespace and _is_own(k, v)}
    return make_class, arguments, methods, None, None, set_methods


def _is_own(name: str, value: Any) -> bool:
    """Whether an attribute was written by the user and not generated with the class."""
    return name not in ("__dict__", "__weakref__", "_abc_impl") and not isinstance(
        value, (types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)
    )


def make_class(
    token: str, metaclass: type, name: str, bases: tuple[type, ...], namespace: dict[str, Any]
) -> type:
    """The class with this token; it is made at the first call in a process."""
    known = _by_token.get(token)
    if known is None:
        known = types.new_class(name, bases, {"metaclass": metaclass}, lambda made: made.update(namespace))
        _tokens[known] = token
        _by_token[token] = known
    return known


def _struct_reduced(cls: Any) -> tuple[Any, ...]:
    own = inspect.get_annotations(cls)
    parameters = inspect.signature(cls).parameters
    fields = []
    for field in msgspec.structs.fields(cls):
        if field.name not in own:
            continue
        default = {
            key: value
            for key in ("default", "default_factory")
            if (value := getattr(field, key)) is not msgspec.NODEFAULT
        }
        fields.append((field.name, own[field.name], default))
    config = {name: getattr(cls.__struct_config__, name) for name in _CONFIG}
    keyword = [parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name, _, _ in fields]
    config["kw_only"] = any(keyword)
    renamed = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
    config["rename"] = {name: to for name, to in renamed.items() if name != to} or None
    methods = {k: v for k, v in vars(cls).items() if k not in _MADE and _is_own(k, v)}
    post_init = vars(cls).get("__post_init__")
    arguments = (_token(cls), cls.__name__, cls.__qualname__, cls.__module__, cls.__doc__, cls.__bases__, fields,
                 config, post_init)  # fmt: skip
    return make_struct, arguments, methods, None, None, set_methods


def make_struct(
    token: str,
    name: str,
    qualname: str,
    module: str,
    doc: str | None,
    bases: tuple[type, ...],
    fields: list[tuple[str, Any, dict[str, Any]]],
    config: dict[str, Any],
    post_init: Any,
) -> type:
    """The msgspec Struct with this token; it is made at the first call in a process."""
    known = _by_token.get(token)
    if known is not None:
        return known
    namespace: dict[str, Any] = {"__qualname__": qualname, "__doc__": doc}
    if post_init is not None:
        namespace["__post_init__"] = post_init
    given = [(n, x, msgspec.field(**d)) if d else (n, x) for n, x, d in fields]
    cls = msgspec.defstruct(name, given, bases=bases, module=module, namespace=namespace, **config)
    _tokens[cls] = token
    _by_token[token] = cls
    return cls


def set_methods(cls: type, methods: dict[str, Any]) -> None:
    """Set the methods of a class that was just made."""
    for name, value in methods.items():
        setattr(cls, name, value)
