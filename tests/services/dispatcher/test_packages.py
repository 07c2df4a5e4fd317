"""Code packages: what is refused, how they are kept, uploads, and requests as Flink's clients send them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from penstock.config import SUBMISSION_KINDS
from penstock.errors import SpecError
from penstock.store import MemoryStore
from penstock_services.common.clock import SystemClock
from penstock_services.common.http import NotFoundError, TooLargeError
from penstock_services.common.security.roles import Role
from penstock_services.dispatcher import packages
from penstock_services.dispatcher.multipart import uploaded_file
from penstock_services.dispatcher.package_api import arguments, asked_of, configuration, job_id_of
from penstock_services.dispatcher.packages import (
    Package,
    Packages,
    TooManyPackagesError,
    program_of,
    read_package,
)
from penstock_services.dispatcher.policy import Policy
from penstock_services.dispatcher.rest import described
from penstock_services.dispatcher.views.packages import RunApplication, RunPackage


def zipped(files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


ONE = zipped({"jobs/__init__.py": "", "jobs/__main__.py": "print(1)", "notes.txt": "x"})


def damaged() -> bytes:
    at = ONE.index(b"print") if b"print" in ONE else ONE.index(b"PK\x01\x02") - 4
    return ONE[:at] + b"XXXX" + ONE[at + 4 :]


def encrypted() -> bytes:
    data = bytearray(zipped({"a.py": "1"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("files", "entry"),
    [
        ({"__main__.py": "", "other.py": ""}, "__main__"),
        ({"jobs/__main__.py": "", "lib/x.py": ""}, "jobs"),
        ({"report.py": "", "lib/x.py": ""}, "report"),
        ({"a.py": "", "b.py": ""}, ""),
        ({"a/__main__.py": "", "b/__main__.py": ""}, ""),
    ],
)
def test_what_runs_when_nothing_is_named(files: dict[str, str], entry: str) -> None:
    assert read_package("p.zip", zipped(files))[1] == entry


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("p.jar", ONE, "not the name of a code package"),
        ("../p.zip", ONE, "not the name of a code package"),
        ("p.zip", b"no zip", "no zip that can be read"),
        ("p.zip", ONE[:-30], "no zip that can be read"),
        ("p.zip", damaged(), "damaged"),
        ("p.zip", encrypted(), "encrypted"),
        ("p.zip", zipped({"../x.py": ""}), "outside of the code package"),
        ("p.zip", zipped({"/etc/x.py": ""}), "outside of the code package"),
        ("p.whl", zipped({"fast.cpython-311.so": "", "a.py": ""}), "native module"),
        ("p.zip", zipped({"readme.txt": ""}), "no module of Python"),
        ("p.zip", zipped({}), "no module of Python"),
        ("p.py", b"def", "not Python"),
        ("p-q.py", b"1", "cannot be imported"),
    ],
)
def test_packages_that_are_refused(name: str, data: bytes, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        read_package(name, data)


def test_a_package_that_unpacks_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "MAX_UNPACKED_BYTES", 100)
    with pytest.raises(TooLargeError, match="unpacks to too much"):
        read_package("bomb.zip", zipped({"a.py": "#" * 101}))


@pytest.mark.parametrize("entry", ["", "a b", "a:b:c", "a.", "os;x", ":f", "1a", "a:"])
def test_entries_that_are_refused(entry: str) -> None:
    with pytest.raises(SpecError, match=r"entry|what to run"):
        program_of(Package(id="i", name="p.zip", uploaded_ms=0), entry)


def test_a_main_module_at_the_root_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Package(id="ab12_counts.zip", name="counts.zip", uploaded_ms=0, entry="__main__")
    with zipfile.ZipFile(tmp_path / "ab12.zip", "w") as archive:
        archive.writestr("beside.py", "TEXT = 'ran'")
        archive.writestr(
            "__main__.py",
            "import sys\nfrom beside import TEXT\nopen(sys.argv[1], 'w').write(TEXT + __name__)\n",
        )
    monkeypatch.syspath_prepend(tmp_path / "ab12.zip")
    monkeypatch.setattr("sys.argv", ["job", str(tmp_path / "out")])
    exec(compile(program_of(package, ""), "<job>", "exec"), {"__name__": "__main__"})
    assert (tmp_path / "out").read_text() == "ran__main__"


async def test_packages_are_kept_by_their_content_for_every_dispatcher() -> None:
    store = MemoryStore()
    first, other = Packages(store, SystemClock()), Packages(store, SystemClock())
    package = await first.add("p.zip", ONE)
    assert await other.add("p.zip", ONE) == package
    assert await other.all() == [package]
    assert await other.content(await other.find(package.id)) == ONE
    await other.delete(package.id)
    assert await first.all() == []
    for missing in (package.id, "x", "../jobs"):
        with pytest.raises(NotFoundError):
            await first.find(missing)
    assert [key for key, _ in await store.list("")] == []


BODY = b'--b\r\nContent-Disposition: form-data; name="jarfile"; filename="C:\\dir\\p.zip"\r\nContent-Type: x\r\n\r\n%s\r\n--b--\r\n'


def test_an_uploaded_file() -> None:
    content = b"\r\n--a\r\n\r\n\x00\xff--b\r\r\n"
    assert uploaded_file("multipart/form-data; boundary=b", BODY % content) == ("p.zip", content)
    assert uploaded_file('multipart/form-data; boundary="b"', BODY % b"")[1] == b""


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("application/zip", b"", "no file is uploaded"),
        ("multipart/form-data", b"", "no file is uploaded"),
        ("multipart/form-data; boundary=b", b"", "not whole"),
        ("multipart/form-data; boundary=b", (BODY % b"x")[:-6], "not whole"),
        ("multipart/form-data; boundary=b", b"--b\r\nno head\r\n--b--", "has no head"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--', "one file"),
    ],
)  # fmt: skip
def test_uploads_that_are_refused(kind: str, body: bytes, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        uploaded_file(kind, body)


def test_requests_in_query_and_body() -> None:
    query = [
        ("entry-class", "a"),
        ("parallelism", "3"),
        ("allowNonRestoredState", "true"),
        ("programArg", "x,y"),
    ]
    asked = asked_of(
        query, b'{"entryClass": "b:main", "savepointPath": "s3://x", "jobId": null, "claimMode": "NO_CLAIM"}'
    )
    assert (asked.entry_class, asked.parallelism, arguments(asked)) == ("b:main", 3, ["x", "y"])
    assert configuration(asked) == {
        "execution.state-recovery.path": "s3://x",
        "execution.state-recovery.ignore-unclaimed-state": "true",
    }
    assert arguments(RunPackage(program_args="--a 'b c'")) == ["--a", "b c"]


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ([("nope", "1")], b""),
        ([("parallelism", "x")], b""),
        ([], b"[]"),
        ([], b'{"entryclass": "a"}'),
        ([], b'{"parallelism": "3"}'),
        ([], b"\xff"),
        ([], b"[" * 100_000),
    ],
)
def test_requests_that_are_refused(query: Any, body: bytes) -> None:
    with pytest.raises(SpecError):
        asked_of(query, body)
    with pytest.raises(SpecError):
        asked_of([], b'{"applicationId": "a1"}')


@pytest.mark.parametrize(
    ("body", "job_id"),
    [(b"{}", None), (b'{"applicationId": "a1"}', "a1"), (b'{"jobId": "a1", "applicationId": "a1"}', "a1")],
)
def test_an_application_has_the_id_of_its_job(body: bytes, job_id: str | None) -> None:
    assert job_id_of(asked_of([], body, RunApplication)) == job_id
    with pytest.raises(SpecError, match="the id of its one job"):
        job_id_of(RunApplication(job_id="a1", application_id="a2"))


def test_modes_and_arguments_that_are_refused() -> None:
    with pytest.raises(SpecError, match="stays its owner's"):
        configuration(RunPackage(claim_mode="CLAIM"))
    with pytest.raises(SpecError, match="cannot be split"):
        arguments(RunPackage(program_args="'"))


async def test_an_upload_that_is_too_large_and_one_that_is_none(front) -> None:
    declared = {"content-length": str(1 << 30)}
    assert (await front.http.post("/jars/upload", content=b"x", headers=declared)).status_code == 413
    assert (await front.http.post("/jars/upload", content=b"x")).status_code == 400
    assert (await front.http.post("/jars/nope/run", json={})).status_code == 404
    assert (await front.http.delete("/jars/nope")).status_code == 404


def test_who_may_submit_may_use_packages() -> None:
    roles = {(e.method, e.path): e.needs for e in described() if e.path.startswith("/jars")}
    assert roles.pop(("GET", "/jars")) is Role.READ
    assert len(roles) == 6
    assert set(roles.values()) == {Role.SUBMIT}


async def test_a_cluster_without_python_takes_no_packages(front) -> None:
    files = {"jarfile": ("p.zip", ONE)}
    front.submitter._policy = Policy({SUBMISSION_KINDS.key: "sql"})
    reply = await front.http.post("/jars/upload", files=files)
    assert (reply.status_code, "takes no specs with 'python'" in reply.text) == (403, True)


class At:
    ms = 0

    def now_ms(self) -> int:
        return self.ms

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits")

    monotonic_ms = now_ms


async def test_a_cluster_keeps_only_so_many_packages() -> None:
    clock = At()
    packages = Packages(MemoryStore(), clock, most=2)
    first = await packages.add("a.py", b"print(1)")
    clock.ms = 1
    await packages.add("b.py", b"print(1)")
    assert await packages.add("a.py", b"print(1)") == first  # the same again
    with pytest.raises(TooManyPackagesError, match="as many code packages") as caught:
        await packages.add("c.py", b"print(1)")
    assert first.id in (caught.value.got or "")
    await packages.delete(first.id)
    await packages.add("c.py", b"print(1)")
    assert {p.name for p in await packages.all()} == {"b.py", "c.py"}


async def test_old_packages_make_room() -> None:
    store, clock = MemoryStore(), At()
    packages = Packages(store, clock, most=2, kept_ms=100)
    old = await packages.add("a.py", b"print(1)")
    clock.ms = 100
    await packages.add("b.py", b"print(1)")
    assert len(await packages.all()) == 2  # not older than they are kept
    clock.ms = 101
    await packages.add("c.py", b"print(1)")
    assert {p.name for p in await packages.all()} == {"b.py", "c.py"}
    assert not [key for key, _ in await store.list("") if old.id in key]
