"""Code packages: zips and wheels of Python that a cluster keeps, from which jobs are run.

A package's id begins with the hash of its content, so that the same package is kept once and any dispatcher serves it.
A job gets a copy of its own, so that it restarts after its package was deleted.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import zipfile
from typing import TYPE_CHECKING

import msgspec

from penstock.config import MAX_PACKAGES, PACKAGES_KEPT_MS
from penstock.errors import SpecError
from penstock.log_events import EventLog
from penstock.messages import layout
from penstock_services.common.http import NotFoundError, TooLargeError

if TYPE_CHECKING:
    from penstock.ports import Clock, Store

_log = EventLog("penstock.rest")

ENDINGS = (".zip", ".whl", ".py")
#: Bounds of what a package unpacks to.
MAX_FILES, MAX_UNPACKED_BYTES = 20_000, 1 << 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}")
_ID = re.compile(r"[0-9a-f]{64}_[A-Za-z0-9][A-Za-z0-9._+-]{0,119}")
_ENTRY = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*(?::[^\W\d]\w*)?")
_NATIVE = (".so", ".pyd", ".dylib")
_ENCRYPTED = 0x1
MAIN = "__main__"


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A package that is kept. ``entry``: the module that runs when none is named; empty if there is no such one."""

    id: str
    name: str
    uploaded_ms: int
    entry: str = ""


class TooManyPackagesError(SpecError):
    """The cluster keeps as many code packages as it may."""

    code = "PS-TOO-MANY-PACKAGES"


def read_package(name: str, data: bytes) -> tuple[bytes, str]:
    """(the zip that slots get, the module that runs when none is named or an empty text) of an uploaded file.

    Raises:
        SpecError: It is no package of Python that can be imported from a zip.
        TooLargeError: It unpacks to too much.
    """
    if not _NAME.fullmatch(name) or not name.endswith(ENDINGS):
        raise SpecError(
            "not the name of a code package",
            expected="up to 120 letters, digits and ._+- before " + ", ".join(ENDINGS),
            got=repr(name[:160]),
            remedy="Penstock runs no Java: a jar has to be written anew in Python or SQL" if name.endswith(".jar") else None,
        )  # fmt: skip
    if name.endswith(".py"):
        return _zipped(name, data), name.removesuffix(".py")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = _checked(archive, name)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError, OSError) as err:
        raise SpecError(
            "the code package is no zip that can be read", expected="a zip or wheel", got=str(err), where=name
        ) from err
    return data, _main_of(files)


def _zipped(name: str, data: bytes) -> bytes:
    try:
        compile(data, name, "exec")
    except (SyntaxError, ValueError) as err:
        raise SpecError(f"the program is not Python: {err}", where=name) from err
    if not name.removesuffix(".py").isidentifier():
        raise SpecError("the program cannot be imported", expected="a name that is an identifier", got=name)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        # One time for all, so that the same program has the same hash.
        archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


def _checked(archive: zipfile.ZipFile, name: str) -> list[str]:
    infos = archive.infolist()
    unpacked = sum(info.file_size for info in infos)
    if len(infos) > MAX_FILES or unpacked > MAX_UNPACKED_BYTES:
        raise TooLargeError(
            "the code package unpacks to too much",
            expected=f"at most {MAX_FILES} files and {MAX_UNPACKED_BYTES} bytes",
            got=f"{len(infos)} files, {unpacked} bytes",
            where=name,
        )
    for info in infos:
        if info.flag_bits & _ENCRYPTED:
            raise SpecError("a file of the code package is encrypted", got=info.filename[:200], where=name)
        if info.filename.startswith("/") or ".." in info.filename.split("/"):
            raise SpecError("a file lies outside of the code package", got=info.filename[:200], where=name)
        if info.filename.endswith(_NATIVE):
            raise SpecError(
                "a native module cannot be imported from a zip",
                expected="modules of Python alone",
                got=info.filename[:200],
                where=name,
                remedy="install it where the cluster's processes run",
            )
    if (damaged := archive.testzip()) is not None:
        raise SpecError("a file of the code package is damaged", got=damaged[:200], where=name)
    files = [info.filename for info in infos]
    if not any(file.endswith(".py") for file in files):
        raise SpecError(
            "the code package has no module of Python",
            expected="files *.py, at its root or in folders that are packages",
            got=", ".join(files[:5]) or "no files",
            where=name,
        )
    return files


def _main_of(files: list[str]) -> str:
    """``__main__`` at the root, or the only module or package with a ``__main__`` there."""
    if f"{MAIN}.py" in files:
        return MAIN
    packages = [file.removesuffix(f"/{MAIN}.py") for file in files if file.endswith(f"/{MAIN}.py")]
    found = [package for package in packages if "/" not in package]
    modules = [file.removesuffix(".py") for file in files if "/" not in file and file.endswith(".py")]
    candidates = found or (modules if len(modules) == 1 else [])
    return candidates[0] if len(candidates) == 1 else ""


def archive_name(package_id: str) -> str:
    """The name of the file in which a package lies while its job is planned."""
    return f"{package_id.partition('_')[0]}.zip"


def program_of(package: Package, entry: str) -> str:
    """The text of the program that runs ``entry``: ``module``, as ``python -m`` does, or ``module:function``, which is
    called with the arguments. Raises SpecError if it is neither, or if none is named and the package has none."""
    entry = entry or package.entry
    if not _ENTRY.fullmatch(entry):
        raise SpecError(
            "not an entry of a code package" if entry else "the code package does not say what to run",
            expected="a module, such as jobs.report, or a function in one: jobs.report:main",
            got=repr(entry[:200]) if entry else f"no {MAIN} in {package.name}",
            where="entryClass",
            remedy="name one: entryClass of the request, --entry of `penstock run`",
        )
    module, _, function = entry.partition(":")
    if function:
        return f"import sys\nfrom importlib import import_module\nimport_module({module!r}).{function}(*sys.argv[1:])\n"
    if module == MAIN:  # ``run_module`` would find the program itself
        archive = archive_name(package.id)
        return (
            "import runpy, sys\n"
            f"runpy.run_path(next(p for p in sys.path if p.endswith({archive!r})), run_name='__main__')\n"
        )
    return f"import runpy\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n"


class Packages:
    """The packages of a cluster, in its object store. ``most``: so many are kept; ``kept_ms``: for so long after their
    upload, 0: until they are deleted."""

    def __init__(
        self, store: Store, clock: Clock, *, most: int = MAX_PACKAGES.default, kept_ms: int = 0
    ) -> None:
        self._store = store
        self._most = most
        self._kept_ms = kept_ms
        self._clock = clock

    async def add(self, name: str, data: bytes) -> Package:
        """Keeps a package. The same content under the same name is kept once. Raises as ``read_package``,
        and TooManyPackagesError if the cluster keeps as many as it may."""
        content, entry = await asyncio.to_thread(read_package, name, data)
        package_id = f"{hashlib.sha256(content).hexdigest()}_{name}"
        package = Package(id=package_id, name=name, uploaded_ms=self._clock.now_ms(), entry=entry)
        await self._make_room(package)
        # The content comes first, so that what is listed can be run.
        await self._store.put(layout.package_content_key(package_id), content)
        await self._store.create(layout.package_key(package_id), msgspec.json.encode(package))
        return await self.find(package_id)

    async def _make_room(self, package: Package) -> None:
        """Deletes the packages that are too old, and raises TooManyPackagesError if too many are left beside this one."""
        others = [other for other in await self.all() if other.id != package.id]
        until_ms = package.uploaded_ms - self._kept_ms
        old = [other for other in others if self._kept_ms and other.uploaded_ms < until_ms]
        for other in old:
            await self._delete(other)
            _log.info("package_expired", package=other.id, uploaded_ms=other.uploaded_ms)
        left = len(others) - len(old)
        if left >= self._most:
            raise TooManyPackagesError(
                "the cluster keeps as many code packages as it may",
                expected=f"fewer than {self._most} packages ({MAX_PACKAGES.key})",
                got=f"{left} packages, the oldest {others[-1].id}",
                remedy=f"delete one (DELETE /jars/ID), or set {PACKAGES_KEPT_MS.key}, which deletes old ones",
            )

    async def all(self) -> list[Package]:
        """All packages, the latest first."""
        keys = [key for key, _ in await self._store.list(layout.PACKAGES_PREFIX)]
        found = await asyncio.gather(*(self._read(key) for key in keys))
        return sorted((p for p in found if p is not None), key=lambda p: (-p.uploaded_ms, p.id))

    async def _read(self, key: str) -> Package | None:
        try:
            return msgspec.json.decode(await self._store.get(key), type=Package)
        except KeyError:
            return None  # it was deleted after it had been listed

    async def find(self, package_id: str) -> Package:
        """The package with this id. Raises NotFoundError if there is none."""
        found = await self._read(layout.package_key(package_id)) if _ID.fullmatch(package_id) else None
        if found is None:
            raise NotFoundError(
                f"there is no code package '{package_id[:200]}'",
                expected="the id of one",
                remedy="GET /jars lists them; POST /jars/upload brings one",
            )
        return found

    async def content(self, package: Package) -> bytes:
        """The zip of a package. Raises NotFoundError if it was deleted meanwhile."""
        try:
            return await self._store.get(layout.package_content_key(package.id))
        except KeyError:
            raise NotFoundError(f"the code package '{package.id}' was deleted") from None

    async def delete(self, package_id: str) -> None:
        """Deletes a package. Jobs that run from it go on. Raises NotFoundError if there is none."""
        package = await self.find(package_id)
        await self._delete(package)

    async def _delete(self, package: Package) -> None:
        await self._store.delete([layout.package_key(package.id), layout.package_content_key(package.id)])
