"""What may be submitted, by whom: kinds of programs, folders, secrets, lengths, rates."""

from __future__ import annotations

import msgspec
import pytest

from penstock import secrets
from penstock.errors import SecretError, SpecError
from penstock.messages.cluster import JobSpec
from penstock_services.common.http import ForbiddenError, TooLargeError
from penstock_services.common.security.roles import Identity, Role
from penstock_services.dispatcher.planning import Planner
from penstock_services.dispatcher.policy import Policy
from tests.services.jobmanager.graphs import pipeline

CI = Identity("ci", Role.SUBMIT, "token")
ROOT = Identity("root", Role.ADMIN, "token")


def naming(*values: str):
    graph = pipeline()
    return msgspec.structs.replace(graph, config={**graph.config, **{f"user.{v}": v for v in values}})


@pytest.mark.parametrize(
    ("config", "who", "value", "refused"),
    [
        ({}, CI, "secret:any", ""),
        ({"secrets.allowed": "shop.*"}, CI, "secret:shop.password", ""),
        ({"secrets.allowed": "shop.*"}, CI, "secret:bank", "bank"),
        ({"secrets.allowed": "shop.*"}, CI, "a=${secret:shop.a};b=${secret:bank}", "bank"),
        ({"secrets.allowed": ""}, CI, "secret:shop", "shop"),
        ({"secrets.allowed": "", "secrets.allowed.role.admin": "*"}, ROOT, "secret:shop", ""),
        ({"secrets.allowed": "*", "secrets.allowed.role.submit": "a"}, CI, "secret:b", "b"),
        ({"secrets.allowed.role.submit": "a", "secrets.allowed.user.ci": "b"}, CI, "secret:b", ""),
        ({"secrets.allowed.role.submit": "a"}, CI, "no secret:b", ""),
        # A name that is a role's gives nobody the role.
        (
            {"secrets.allowed": "", "secrets.allowed.role.admin": "*"},
            Identity("admin", Role.SUBMIT, "oidc"),
            "secret:b",
            "b",
        ),
    ],
)
def test_secrets(config, who, value, refused):
    if not refused:
        Policy(config).check_graph(naming(value), who)
        return
    with pytest.raises(ForbiddenError, match=f"may not name the secret '{refused}'"):
        Policy(config).check_graph(naming(value), who)


def test_folders(tmp_path):
    root = tmp_path / "code"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    policy = Policy({"security.submission.roots": f"{root}, /not/there"})
    policy.check_spec(JobSpec(sql="x", files=[str(root / "a.zip"), "/not/there/b"]))
    for bad in (str(tmp_path), str(root / ".."), f"{root}x", str(root / "out" / "b"), "relative", "/", ""):
        with pytest.raises(ForbiddenError, match="not allowed"):
            policy.check_spec(JobSpec(sql="x", files=[bad]))
        with pytest.raises(ForbiddenError, match="not allowed"):
            policy.check_graph(msgspec.structs.replace(pipeline(), python_path=(bad,)), CI)


def test_kinds_and_lengths():
    policy = Policy({"security.submission.programs": "sql", "security.submission.max-sql-length": "3"})
    policy.check_spec(JobSpec(sql="abc"))
    with pytest.raises(TooLargeError):
        policy.check_spec(JobSpec(sql="abcd"))
    for spec in (JobSpec(python="x"), JobSpec(job_graph={})):
        with pytest.raises(ForbiddenError, match="takes no specs with"):
            policy.check_spec(spec)
    with pytest.raises(SpecError, match="unknown kind"):
        Policy({"security.submission.programs": "sql,jar"})


async def test_a_planner_looks_up_allowed_secrets_alone(monkeypatch):
    monkeypatch.setenv("PENSTOCK_SECRET_a", "value-a")
    program = (
        "from penstock import secrets\nsecrets.resolve('secret:a', where='here')\nraise SystemExit('read it')"
    )
    with pytest.raises(SecretError, match="the secret 'a' may not be named here"):
        await Planner().plan(JobSpec(python=program), ["b*"])
    with pytest.raises(Exception, match=r"read it|ended without"):
        await Planner().plan(JobSpec(python=program), ["a"])


def test_names_in_a_tree():
    tree = {
        "a": ["secret:x", {"secret:y": 1}],
        "b": "q ${secret:z} ${secret:w}",
        "c": None,
        "d": ("secret:t",),
    }
    assert secrets.names_in(tree) == {"x", "y", "z", "w", "t"}


async def test_over_rest(front):
    front.submitter._policy = Policy({"secrets.allowed": "", "security.submission.max-per-minute": "3"})
    body = {"job_graph": msgspec.to_builtins(naming("secret:bank"))}
    refused = await front.http.post("/jobs", json=body)
    assert refused.status_code == 403
    assert "'bank'" in refused.json()["errors"][0]
    assert (await front.http.post("/jobs", json={"sql": 5})).status_code == 400
    codes = [
        (await front.http.post("/jobs", json={"job_graph": msgspec.to_builtins(pipeline())})).status_code
        for _ in range(3)
    ]
    assert codes == [200, 200, 429]


def test_folders_of_savepoints(tmp_path):
    root, own = tmp_path / "root", tmp_path / "savepoints"
    (root / "in").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path)
    config = {
        "security.submission.roots": f"{root}, s3://bucket/a",
        "execution.checkpointing.savepoint-dir": own.as_uri(),
    }
    folders = Policy(config).folders
    good = (
        None,
        "",
        "backup",
        "a/key",
        str(root),
        f"{root}/in/x",
        root.as_uri(),
        str(own),
        f"{own.as_uri()}/b",
        "s3://bucket/a/b/",
    )
    bad = (
        str(tmp_path),
        f"{root}/out/x",
        f"file://{root}/%2e%2e/x",
        f"{root}x",
        "/",
        "s3://bucket/ab",
        "s3://bucket/a/../b",
        "gs://bucket/a",
    )
    for folder in good:
        folders.check_savepoints(folder, "here")
    for folder in bad:
        with pytest.raises(ForbiddenError, match="savepoints in this folder are not allowed"):
            folders.check_savepoints(folder, "here")
        # A job may not name such a folder in its own configuration.
        job = msgspec.structs.replace(pipeline(), config={"execution.checkpointing.savepoint-dir": folder})
        with pytest.raises(ForbiddenError, match="savepoints in this folder"):
            Policy(config).check_graph(job, CI)
        Policy({}).check_graph(job, CI)
        Policy({}).folders.check_savepoints(folder, "here")
