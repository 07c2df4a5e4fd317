"""The class of a table's messages: a generated one by its import path, or one made from a descriptor set."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from penstock.errors import ConnectorError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHERE = "format 'protobuf'"


def message_class(read: Mapping[str, Any]) -> Any:
    """The class that the table's options name. ConnectorError if there is none.

    Args:
        read: The format's options, typed.
    """
    name, path = read["protobuf.message-class-name"], read["protobuf.descriptor-set"]
    return _generated(name) if path is None else _from_set(name, path)


def _generated(name: str) -> Any:
    """The class at an import path. The class may be nested in others."""
    words = name.replace(":", ".").replace("$", ".").split(".")
    for cut in range(len(words) - 1, 0, -1):
        module = ".".join(words[:cut])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as err:
            if err.name is not None and (module == err.name or module.startswith(f"{err.name}.")):
                continue
            raise _not_found(name, f"{type(err).__name__}: {err}") from err
        except Exception as err:  # whatever the user's module raises when it is imported
            raise _not_found(name, f"{type(err).__name__}: {err}") from err
        for word in words[cut:]:
            if not hasattr(found, word):
                raise _not_found(name, f"module '{module}' has no '{word}'", nearest(word, dir(found)))
            found = getattr(found, word)
        if not isinstance(found, type) or not issubclass(found, message.Message):
            raise _not_found(name, f"an object of type {type(found).__name__}")
        return found
    raise _not_found(name, "no such module")


def _not_found(name: str, got: str, hint: str | None = None) -> ConnectorError:
    return ConnectorError(
        f"'{name}' is no class of a protobuf message",
        expected="package.module_pb2.Message, as protoc --python_out makes it",
        got=got,
        where=f"{_WHERE}, 'protobuf.message-class-name'",
        remedy=hint
        or "correct the name and ship the module with the job, or name a descriptor set with 'protobuf.descriptor-set'",
    )


def _from_set(name: str, path: str) -> Any:
    try:
        data = Path(path).read_bytes()
        files = descriptor_pb2.FileDescriptorSet.FromString(data).file
    except (OSError, message.DecodeError) as err:
        raise ConnectorError(
            f"the descriptor set '{path}' cannot be read",
            expected="a file of protoc --include_imports --descriptor_set_out, on every machine that plans or runs the job",
            got=f"{type(err).__name__}: {err}",
            where=f"{_WHERE}, 'protobuf.descriptor-set'",
        ) from None
    pool = descriptor_pool.DescriptorPool()
    left = {file.name: file for file in files}
    for file in files:
        _add(file, left, pool, path)
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        known = [f"{file.package}.{m.name}".lstrip(".") for file in files for m in file.message_type]
        raise ConnectorError(
            f"the descriptor set '{path}' has no message '{name}'",
            expected="one of " + ", ".join(known[:20]),
            got=f"'{name}'",
            where=f"{_WHERE}, 'protobuf.message-class-name'",
            remedy=nearest(name, known) or "write the message's full name: package.Message",
        ) from None


def _add(file: Any, left: dict[str, Any], pool: Any, path: str) -> None:
    """Adds a file behind those that it imports."""
    if left.pop(file.name, None) is None:
        return
    for name in file.dependency:
        if name in left:
            _add(left[name], left, pool, path)
            continue
        try:
            pool.FindFileByName(name)
        except KeyError:
            pool.AddSerializedFile(_well_known(name, path))
    try:
        pool.Add(file)
    except TypeError as err:
        raise ConnectorError(
            f"the descriptor set '{path}' is not in order",
            expected="files that protoc has checked", got=str(err), where=f"file '{file.name}'",
        ) from None  # fmt: skip


def _well_known(name: str, path: str) -> bytes:
    """A file that the library brings: sets without --include_imports lack them."""
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if name.startswith("google/protobuf/") and importlib.util.find_spec(module) is not None:
        return bytes(importlib.import_module(module).DESCRIPTOR.serialized_pb)
    raise ConnectorError(
        f"the descriptor set '{path}' lacks a file that another one imports",
        expected=f"'{name}'",
        got="no such file",
        where=f"{_WHERE}, 'protobuf.descriptor-set'",
        remedy="make the set with protoc --include_imports",
    )
