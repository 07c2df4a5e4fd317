"""Generates ``docs/cli.md``: every command with its arguments and options, from the functions of the command line."""

from __future__ import annotations

import inspect
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typer.models import ArgumentInfo, OptionInfo

from penstock.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable

#: Commands that become one process of a cluster and pass all arguments to it.
_PASSED_ON = {"dispatcher", "jobmanager", "resourcemanager", "taskmanager", "sql-gateway", "history-server"}


@dataclass(frozen=True, slots=True)
class _Parameter:
    """An argument or option as its function declares it."""

    name: str
    info: ArgumentInfo | OptionInfo
    type: Any
    default: Any

    @property
    def is_option(self) -> bool:
        return isinstance(self.info, OptionInfo)

    def usage(self) -> str:
        name = self.info.metavar or self.name.upper()
        many = "…" if typing.get_origin(self.type) is list and "|" not in name else ""
        return f"{name}{many}" if self.default is inspect.Parameter.empty else f"[{name}{many}]"

    def row(self) -> str:
        if self.is_option:
            words = {int: "N", float: "N", str: "TEXT", list: "TEXT"}
            plain = typing.get_origin(self.type) or self.type
            value = "" if plain is bool else f" {self.info.metavar or words.get(plain, 'PATH')}"
            names = ", ".join(f"`{flag}{value}`" for flag in self.flags())
        else:
            names = f"`{self.info.metavar or self.name.upper()}`"
        default = (
            ""
            if self.default in (None, "", inspect.Parameter.empty) or self.default is False
            else f"`{self.default}`"
        )
        meaning = " ".join((self.info.help or "").split())
        if self.info.envvar:
            meaning += f" Environment: `{self.info.envvar}`."
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in (names, default, meaning)) + " |"

    def flags(self) -> list[str]:
        """The flags of the option. Inside ``Annotated``, typer stores the first flag as the default."""
        given = [
            flag for flag in (self.info.default, *(self.info.param_decls or ())) if isinstance(flag, str)
        ]
        return given or [f"--{self.name.replace('_', '-')}"]


def _parameters(function: Callable[..., Any]) -> list[_Parameter]:
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if typing.get_origin(hints.get(name)) is not typing.Annotated:
            continue
        declared, *notes = typing.get_args(hints[name])
        info = next((note for note in notes if isinstance(note, ArgumentInfo | OptionInfo)), None)
        if info is not None:
            found.append(_Parameter(name, info, _without_none(declared), parameter.default))
    return found


def _without_none(declared: Any) -> Any:
    if isinstance(declared, types.UnionType):
        return next(each for each in typing.get_args(declared) if each is not type(None))
    return declared


def markdown() -> str:
    """The whole page."""
    commands = {
        (info.name or info.callback.__name__).replace("_", "-"): info.callback
        for info in app.registered_commands
        if info.callback is not None
    }
    helps = {info.callback: info.help for info in app.registered_commands}
    examples = {info.callback: info.epilog for info in app.registered_commands}
    texts = {
        name: " ".join((helps[call] or inspect.getdoc(call) or "").split()) for name, call in commands.items()
    }
    lines = [
        "# Command line",
        "",
        "Made by `python -m penstock.cli.page > docs/cli.md`; a test holds it to the code.",
        "",
        "`penstock COMMAND --help` shows the same. Commands that talk to a cluster find it by `--cluster` or",
        "`PENSTOCK_CLUSTER`; `sql` and `run` without one start a cluster of their own, which ends with them.",
        "[Operations](operations.md) shows the commands at work.",
        "",
        "| command | |",
        "|---|---|",
        *(f"| [`{name}`](#{name}) | {_short(text)} |" for name, text in texts.items()),
    ]
    for name, call in commands.items():
        lines += ["", f"## {name}", "", texts[name], ""]
        if name in _PASSED_ON:
            lines += [
                f"`penstock {name} [--config FILE] [-D KEY=VALUE …]` reads that file of",
                "[configuration](configuration.md), else the one that `PENSTOCK_CONF` names.",
            ]
            continue
        parameters = _parameters(call)
        usage = [f"penstock {name}", *(["[OPTIONS]"] if any(p.is_option for p in parameters) else [])]
        usage += [p.usage() for p in parameters if not p.is_option]
        lines += ["```text", " ".join(usage), "```"]
        if example := examples[call]:
            lines += ["", f"Example: `{example.removeprefix('Example: ')}`"]
        if parameters:
            lines += ["", "| | default | meaning |", "|---|---|---|", *(p.row() for p in parameters)]
    return "\n".join(lines) + "\n"


def _short(text: str) -> str:
    return text.split(". ")[0].rstrip(".") + "."


if __name__ == "__main__":
    print(markdown(), end="")
