"""A service's configuration: file, environment, ``-D``; later ones win."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import check_cluster
from penstock.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Path of the configuration file when ``--config`` is not given.
ENV_FILE = "PENSTOCK_CONF"


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested mappings as dotted keys, with the values as texts that a user would write. A list becomes a text
    with commas."""
    flat: dict[str, str] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat.update(flatten(value, f"{name}."))
        elif isinstance(value, bool):
            flat[name] = str(value).lower()
        elif isinstance(value, list):
            flat[name] = ",".join(str(item) for item in value)
        elif value is not None:
            flat[name] = str(value)
    return flat


def read_file(path: str | Path) -> dict[str, str]:
    """A YAML file of keys, nested or dotted. SpecError if it does not exist or is malformed."""
    import yaml

    try:
        text = Path(path).read_text()
    except OSError as err:
        raise SpecError(
            f"cannot read the configuration file: {err.strerror}",
            where=str(path),
            remedy=f"give an existing file with --config or {ENV_FILE}",
        ) from err
    try:
        tree = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as err:
        raise SpecError(f"the configuration file is not YAML: {err}", where=str(path)) from err
    if tree is not None and not isinstance(tree, dict):
        raise SpecError(
            "the configuration file holds no keys",
            expected="'key: value' lines",
            got=type(tree).__name__,
            where=str(path),
        )
    return flatten(tree or {})


def parse_arguments(
    role: str, argv: Sequence[str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The checked configuration from the command line and the environment. Raises SpecError for a wrong
    argument or key."""
    environ = os.environ if environ is None else environ
    parser = argparse.ArgumentParser(prog=f"python -m penstock_services.{role}")
    parser.add_argument("--config", metavar="FILE", help=f"YAML configuration (default: ${ENV_FILE})")
    parser.add_argument(
        "-D", dest="pairs", action="append", default=[], metavar="KEY=VALUE", help="one value; repeatable"
    )
    args = parser.parse_args(argv)
    path = args.config or environ.get(ENV_FILE)
    config = read_file(path) if path else {}
    for pair in args.pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise SpecError("malformed -D", expected="-D key=value", got=f"-D {pair}")
        config[key.strip()] = value.strip()
    check_cluster(config)
    return config
