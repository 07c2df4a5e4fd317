"""Opening object storage by URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.errors import ObjectStoreError, SpecError
from penstock.plugins import Register, function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from obstore.store import ObjectStore

    from penstock.ports import Store

    OpenStore = Callable[[str, Mapping[str, str]], Store]

#: Options of the HTTP client. obstore takes them separately from those of the store.
_CLIENT_OPTIONS = frozenset({
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only",
    "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes", "proxy_url",
    "randomize_addresses", "timeout", "user_agent",
})  # fmt: skip

_KNOWN = "file:///folder, s3://bucket/prefix, gs://…, az://…, or memory:///name"


def open_local(url: str, options: Mapping[str, str]) -> Store:
    """The store at ``file:///folder``. Raises SpecError if the URL names no folder of this machine."""
    from penstock.store.local import LocalStore

    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise SpecError("not a folder's URL", expected="file:///absolute/folder", got=repr(url))
    return LocalStore(unquote(parts.path))


def open_memory(url: str, options: Mapping[str, str]) -> Store:
    """The store at ``memory:///name``, which exists within this process only."""
    from penstock.store.memory import MemoryStore

    return MemoryStore.named(url)


def open_remote(url: str, options: Mapping[str, str]) -> Store:
    """The store at any URL that obstore supports."""
    from penstock.store.objects import ObstoreStore

    return ObstoreStore(open_obstore(url, options), url)


#: URL scheme → ``open(url, options) -> Store``. A scheme that is not registered is passed to obstore.
STORES: Register[OpenStore] = Register(
    "object store",
    "penstock.stores",
    builtin={
        "file": "penstock.store.open:open_local",
        "memory": "penstock.store.open:open_memory",
        **dict.fromkeys(
            ("abfs", "abfss", "adl", "az", "azure", "gs", "s3", "s3a"), "penstock.store.open:open_remote"
        ),
    },
    make=function,
    expected="a function open(url, options) that returns a penstock.ports.Store",
    error=SpecError,
)


def open_store(url: str, options: Mapping[str, str] | None = None) -> Store:
    """Opens the store at ``url``. Keys are relative to its folder or prefix. A key may also be the whole URL
    of an object elsewhere, which is opened with the same options.

    ``options`` are obstore's (``endpoint``, ``access_key_id``, ``secret_access_key``, ``region``,
    ``allow_http`` …), as in the keys ``storage.options.*``. Raises SpecError if the URL names no store,
    ObjectStoreError if the store cannot be opened.
    """
    from penstock.store.routed import RoutedStore

    given = options or {}
    if urlsplit(url).scheme == "memory":  # its objects have no URLs that another process could open
        return _open(url, given)
    return RoutedStore(_open(url, given), url.rstrip("/"), lambda other: _open(other, given))


def _open(url: str, options: Mapping[str, str]) -> Store:
    scheme = urlsplit(url).scheme
    if not scheme:
        raise SpecError("not an object store's URL", expected=_KNOWN, got=repr(url))
    opened = STORES.find(scheme) if STORES.providers(scheme) else open_remote
    return opened(url, options)


#: What an impatient client does when a store does not answer: so many repetitions, and seconds. obstore's own are 10 and 180.
IMPATIENT_RETRIES, IMPATIENT_S = 2, 10


def open_obstore(url: str, options: Mapping[str, str], *, impatient: bool = False) -> ObjectStore:
    """The obstore store at ``url``. obstore reads missing options from the environment (``AWS_ENDPOINT``,
    ``AWS_ACCESS_KEY_ID`` …). ``impatient``: the client soon says that a store does not answer, because the caller asks
    again by itself. Raises ObjectStoreError if the store cannot be opened."""
    from datetime import timedelta

    import obstore.exceptions
    from obstore.store import from_url

    from penstock.store.objects import short

    client: Any = {key: value for key, value in options.items() if key in _CLIENT_OPTIONS}
    config: Any = {key: value for key, value in options.items() if key not in _CLIENT_OPTIONS}
    retry: Any = None
    if impatient:
        retry = {"max_retries": IMPATIENT_RETRIES, "retry_timeout": timedelta(seconds=IMPATIENT_S)}
    try:
        return from_url(url, config=config or None, client_options=client or None, retry_config=retry)
    except (obstore.exceptions.BaseError, ValueError, TypeError) as err:
        raise ObjectStoreError(
            f"cannot open the object store {url}: {short(err)}",
            expected=_KNOWN,
            remedy="check the URL, the endpoint and keys (storage.options.*, a table's fs.*, or AWS_* "
            "in the environment)",
        ) from err
