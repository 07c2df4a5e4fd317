"""Code packages in the shapes of Flink's jars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.jobgraph.graph import JobGraph
from penstock.messages.cluster import JobDetails, VertexDetails
from penstock.messages.states import JobStatus
from penstock_services.dispatcher.views.common import Camel, Shape
from penstock_services.jobmanager.details import edge_details

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock_services.dispatcher.packages import Package


class PackageEntry(Shape, frozen=True, kw_only=True):
    """What runs when no entry is named."""

    name: str
    description: str | None = None


class PackageFile(Shape, frozen=True, kw_only=True):
    """One package. ``uploaded``: ms since 1970."""

    id: str
    name: str
    uploaded: int
    entry: list[PackageEntry]


class PackageList(Shape, frozen=True, kw_only=True):
    """``GET /jars``"""

    address: str
    files: list[PackageFile]


class PackageUploaded(Shape, frozen=True, kw_only=True):
    """``POST /jars/upload``. The last part of ``filename`` is the package's id."""

    filename: str
    status: str = "success"


class PackageRun(Shape, frozen=True, kw_only=True):
    """``POST /jars/{jar}/run``"""

    jobid: str


class ApplicationRun(Shape, frozen=True, kw_only=True):
    """``POST /jars/{jar}/run-application``. ``applicationid``: the job's id."""

    applicationid: str


class RunPackage(Camel, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a run or a plan. ``entry_class``: a module, or ``module:function``. ``program_args``: arguments as a
    shell reads them. ``job_id``: repeated with the same id, a run is the same job."""

    entry_class: str | None = None
    program_args: str | None = None
    program_args_list: list[str] | None = None
    parallelism: int | None = None
    job_id: str | None = None
    allow_non_restored_state: bool | None = None
    savepoint_path: str | None = None
    claim_mode: str | None = None
    restore_mode: str | None = None
    flink_configuration: dict[str, str] | None = None


class RunApplication(RunPackage, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of ``run-application``. ``application_id``: another name of ``job_id``."""

    application_id: str | None = None


def package_list(address: str, packages: Iterable[Package]) -> PackageList:
    """All packages."""
    files = [
        PackageFile(
            id=p.id, name=p.name, uploaded=p.uploaded_ms, entry=[PackageEntry(name=p.entry)] if p.entry else []
        )
        for p in packages
    ]  # fmt: skip
    return PackageList(address=address, files=files)


def planned(graph: JobGraph) -> JobDetails:
    """The details of a job that does not run, for its plan."""
    vertices = [
        VertexDetails(
            id=vertex.id,
            name=vertex.name,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            operators=[
                {"uid": n.uid, "name": n.name, "kind": str(type(n.spec).__struct_config__.tag)}
                for n in vertex.operators
            ],
            inputs=[edge_details(edge) for edge in graph.inputs_of(vertex.id)],
        )
        for vertex in graph.vertices
    ]
    return JobDetails(
        job_id="0" * 32, name=graph.name, status=JobStatus.INITIALIZING, attempt=0, epoch=0, start_ms=0,
        vertices=vertices, bounded=graph.bounded, plan=graph.plan, guarantees=msgspec.to_builtins(graph.guarantees),
    )  # fmt: skip
