"""Where a savepoint is: the paths that users give, as the cluster and its stores understand them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from penstock.api.client import ClusterClient
from penstock.errors import SpecError
from penstock.store.routed import is_url


def local_folder(path: str) -> Path:
    """On this machine, absolute, and without ``.`` and ``..``, which no store's key may have."""
    absolute = Path(path).absolute()
    return absolute.resolve() if ".." in absolute.parts else absolute


def addressed(path: str) -> str:
    """A savepoint's folder, there or not yet, as the cluster understands it. Absolute paths, and those
    with ``.`` or ``..``, are of this machine; others are URLs, or keys in the cluster's store."""
    dotted = bool({".", ".."} & set(path.split("/")))
    if dotted and path.startswith("file:///"):
        return local_folder(unquote(path.removeprefix("file://"))).as_uri()
    return str(local_folder(path)) if dotted and not is_url(path) else path


def locate(path: str, cluster: str | None) -> str:
    """A savepoint's folder (or its manifest) as a URL: a URL, a folder on this machine, or a key
    in the cluster's store."""
    if is_url(path):
        return addressed(path)
    if Path(path).exists():
        return local_folder(path).as_uri()
    if cluster is None or path.startswith("/"):
        raise SpecError(
            "there is no such savepoint", expected="a folder or URL", got=path,
            remedy="`penstock savepoint inspect` of the folder above names those in it; a path in a cluster's "
            "store is relative and needs --cluster",
        )  # fmt: skip
    with ClusterClient(cluster, patience_s=2) as client:
        root = client.jobmanager_config().get("high-availability.storageDir", "")
    return f"{root.rstrip('/')}/{path}"
