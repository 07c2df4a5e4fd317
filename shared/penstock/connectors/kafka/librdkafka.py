"""The C functions of librdkafka, of the library that the Python client has loaded."""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaError

_handle, _text, _int, _long = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64
_offset = ctypes.POINTER(_long)
#: Called with the client, an error's code, its text, and nothing.
ErrorCallback = ctypes.CFUNCTYPE(None, _handle, _int, _text, _handle)

#: Function → (result, arguments), as librdkafka's header has them.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rd_kafka_conf_new": (_handle, ()),
    "rd_kafka_conf_destroy": (None, (_handle,)),
    "rd_kafka_conf_set": (_int, (_handle, _text, _text, _text, ctypes.c_size_t)),
    "rd_kafka_conf_set_error_cb": (None, (_handle, ErrorCallback)),
    "rd_kafka_new": (_handle, (_int, _handle, _text, ctypes.c_size_t)),
    "rd_kafka_destroy_flags": (None, (_handle, _int)),
    "rd_kafka_poll_set_consumer": (_int, (_handle,)),
    "rd_kafka_queue_get_consumer": (_handle, (_handle,)),
    "rd_kafka_queue_destroy": (None, (_handle,)),
    "rd_kafka_consume_batch_queue": (ctypes.c_ssize_t, (_handle, _int, _handle, ctypes.c_size_t)),
    "rd_kafka_consumer_close": (_int, (_handle,)),
    "rd_kafka_topic_name": (_text, (_handle,)),
    "rd_kafka_topic_partition_list_new": (_handle, (_int,)),
    "rd_kafka_topic_partition_list_add": (_handle, (_handle, _text, _int)),
    "rd_kafka_topic_partition_list_set_offset": (_int, (_handle, _text, _int, _long)),
    "rd_kafka_topic_partition_list_destroy": (None, (_handle,)),
    "rd_kafka_incremental_assign": (_handle, (_handle, _handle)),
    "rd_kafka_incremental_unassign": (_handle, (_handle, _handle)),
    "rd_kafka_commit": (_int, (_handle, _handle, _int)),
    "rd_kafka_get_watermark_offsets": (_int, (_handle, _text, _int, _offset, _offset)),
    "rd_kafka_query_watermark_offsets": (_int, (_handle, _text, _int, _offset, _offset, _int)),
    "rd_kafka_error_code": (_int, (_handle,)),
    "rd_kafka_error_string": (_text, (_handle,)),
    "rd_kafka_error_destroy": (None, (_handle,)),
    "rd_kafka_err2str": (_text, (_int,)),
    "rd_kafka_fatal_error": (_int, (_handle, _text, ctypes.c_size_t)),
    "rd_kafka_last_error": (_int, ()),
}  # fmt: skip
#: Functions that the compiled kernels call, in the order in which they expect them.
_OF_KERNELS = (
    "rd_kafka_message_destroy", "rd_kafka_message_timestamp", "rd_kafka_message_leader_epoch",
    "rd_kafka_message_headers", "rd_kafka_header_get_all",
)  # fmt: skip
_ERROR_BYTES = 512
#: A flag of ``rd_kafka_destroy_flags``: do not wait for the brokers.
NO_CONSUMER_CLOSE = 8


@cache
def functions() -> ctypes.CDLL | None:
    """The library with its functions declared; None: the Python client does not offer them all."""
    try:
        # The functions of the libraries that a library needs are found in it, too.
        found = ctypes.CDLL(str(importlib.import_module("confluent_kafka.cimpl").__file__))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
        for name in _OF_KERNELS:
            getattr(found, name)
    except (ImportError, OSError, AttributeError):
        return None
    return found


def of_kernels(found: ctypes.CDLL) -> ctypes.Array[ctypes.c_void_p]:
    """The pointers that the compiled kernels take as their client."""
    addresses = [ctypes.cast(getattr(found, name), ctypes.c_void_p) for name in _OF_KERNELS]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def consumer(found: ctypes.CDLL, properties: Mapping[str, Any], on_error: Any) -> int:
    """A new consumer. ``on_error``: an ``ErrorCallback``, which must live as long as it. KafkaException for properties that
    are not in order."""
    from confluent_kafka import KafkaError as E

    config, text = found.rd_kafka_conf_new(), ctypes.create_string_buffer(_ERROR_BYTES)
    for name, value in properties.items():
        given = str(value).lower() if isinstance(value, bool) else str(value)
        if found.rd_kafka_conf_set(config, name.encode(), given.encode(), text, _ERROR_BYTES):
            found.rd_kafka_conf_destroy(config)
            raise exception(E._INVALID_ARG, text.value.decode(errors="replace"))
    found.rd_kafka_conf_set_error_cb(config, on_error)
    made = found.rd_kafka_new(1, config, text, _ERROR_BYTES)  # RD_KAFKA_CONSUMER
    if not made:
        code = found.rd_kafka_last_error()
        found.rd_kafka_conf_destroy(config)
        raise exception(code, text.value.decode(errors="replace"))
    return int(made)


def error_of(found: ctypes.CDLL, client: int, code: int, text: str) -> KafkaError:
    """What the client's error callback was told, with the cause of a fatal error."""
    from confluent_kafka import KafkaError as E

    if code != E._FATAL:
        return E(code, text)
    buffer = ctypes.create_string_buffer(_ERROR_BYTES)
    cause = found.rd_kafka_fatal_error(client, buffer, _ERROR_BYTES)
    return E(cause, buffer.value.decode(errors="replace"), True)


def exception(code: int, text: str) -> Exception:
    """A KafkaException of an error's code and text."""
    from confluent_kafka import KafkaError, KafkaException

    return KafkaException(KafkaError(code, text))


def check(found: ctypes.CDLL, code: int) -> None:
    """KafkaException unless ``code`` says that all went well."""
    if code:
        raise exception(code, found.rd_kafka_err2str(code).decode())


def check_error(found: ctypes.CDLL, error: int | None) -> None:
    """The same for an error object, which is destroyed."""
    if not error:
        return
    code, text = found.rd_kafka_error_code(error), found.rd_kafka_error_string(error).decode()
    found.rd_kafka_error_destroy(error)
    raise exception(code, text)
