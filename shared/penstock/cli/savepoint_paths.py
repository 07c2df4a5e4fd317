"""The paths of savepoints that users give, in the form that the cluster and its stores understand."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from penstock.api.client import ClusterClient
from penstock.errors import SpecError
from penstock.store.routed import is_url


def local_folder(path: str) -> Path:
    """The absolute folder on this machine, without ``.`` and ``..``, which the key of an object may not contain."""
    absolute = Path(path).absolute()
    return absolute.resolve() if ".." in absolute.parts else absolute


def addressed(path: str) -> str:
    """The folder of a savepoint (which need not exist) as the cluster understands it.

    Absolute paths, and paths with ``.`` or ``..``, are folders of this machine; others are URLs or keys in the
    cluster's store.
    """
    dotted = bool({".", ".."} & set(path.split("/")))
    if dotted and path.startswith("file:///"):
        return local_folder(unquote(path.removeprefix("file://"))).as_uri()
    return str(local_folder(path)) if dotted and not is_url(path) else path


def locate(path: str, cluster: str | None) -> str:
    """The folder of an existing savepoint (or its manifest) as a URL.

    ``path`` is a URL, a folder on this machine, or a key in the store of ``cluster``. Raises SpecError if there
    is no savepoint.
    """
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
