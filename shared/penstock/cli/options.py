"""Options that several commands share, and the configuration that they make."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.errors import SpecError

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        envvar="PENSTOCK_CLUSTER",
        help="REST address of a running cluster (http://127.0.0.1:8081).",
    ),
]
Config = Annotated[
    list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="A configuration value; repeatable.")
]
Engine = Annotated[str | None, typer.Option("--engine", help="auto, streaming or spark.")]
Backfill = Annotated[
    str | None,
    typer.Option(
        "--backfill", help="Engine that reads the history of a hybrid table: auto, spark or none (streaming)."
    ),
]
Parallelism = Annotated[
    int | None, typer.Option("-p", "--parallelism", min=1, help="Parallelism of the job.")
]
TextFormat = Annotated[str, typer.Option("--format", help="text or json.")]
TableFormat = Annotated[str, typer.Option("--format", help="table or json.")]

#: As penstock.credentials reads them, which a fast start does not import.
TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "PENSTOCK_TOKEN", "PENSTOCK_TOKEN_FILE"
DEFAULT_CLUSTER = "http://127.0.0.1:8081"


def job_config(
    pairs: list[str] | None, engine: str | None, parallelism: int | None, backfill: str | None = None
) -> dict[str, str]:
    """The configuration of a job: its -D values, overridden by the options that have names of their own."""
    from penstock.config import check_job

    settings = parse_config(pairs)
    if engine is not None:
        settings["execution.engine"] = engine
    if backfill is not None:
        settings["execution.backfill.engine"] = backfill
    if parallelism is not None:
        settings["parallelism.default"] = str(parallelism)
    check_job(settings)
    return settings


def parse_config(pairs: list[str] | None) -> dict[str, str]:
    """The configuration of ``-D key=value`` pairs. Raises SpecError for a malformed pair or an unknown key."""
    from penstock.config import check_keys

    config = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise SpecError("malformed -D", expected="-D key=value", got=f"-D {pair}")
        config[key.strip()] = value.strip()
    check_keys(config)
    return config
