"""Specs of other packages' operators: a job graph holds them as plain data with the name of their class."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.errors import SpecError
from penstock.jobgraph.loading import loaded
from penstock.jobgraph.specs.base import Keys, Spec, Spread


class RegisteredSpec(Spec, frozen=True, kw_only=True, tag="registered"):
    """The spec of an operator of another package. It declares what that spec declares.

    ``type``: ``module:Class`` of the spec, which must be importable wherever the job is planned and run.
    ``fields``: the fields of the spec as plain data.
    """

    type: str
    fields: dict[str, Any]

    def own(self) -> Spec:
        """The spec itself. Raises SpecError if its class is not installed or has other fields."""
        return _own(self.type, msgspec.json.encode(self.fields, order="sorted"))

    def required_keys(self, width: int) -> Keys:
        return self.own().required_keys(width)

    def spread(self, ports: Sequence[Spread], left_width: int) -> Spread:
        return self.own().spread(ports, left_width)

    def keeps_state(self) -> bool:
        return self.own().keeps_state()

    def alone_on_spark(self) -> bool:
        return self.own().alone_on_spark()

    def native(self) -> str:
        return self.own().native()

    def not_streamed(self) -> str | None:
        return self.own().not_streamed()

    def meeting_keys(self, index: int) -> tuple[int, ...]:
        return self.own().meeting_keys(index)

    def event_order(self, index: int) -> str | int | None:
        return self.own().event_order(index)

    def reads_time(self) -> bool:
        return self.own().reads_time()

    def passes_time(self) -> bool:
        return self.own().passes_time()

    def reads_arrival(self) -> bool:
        return self.own().reads_arrival()

    def passes_arrival(self) -> bool:
        return self.own().passes_arrival()

    def compaction(self) -> tuple[int, ...] | None:
        return self.own().compaction()


def registered(spec: Spec) -> RegisteredSpec:
    """A spec of another package as a job graph holds it. Raises SpecError if its class cannot be imported by
    name or names no ``operator``."""
    kind = type(spec)
    path = f"{kind.__module__}:{kind.__qualname__}"
    if not kind.operator or loaded(path) is not kind:
        raise SpecError(
            f"the operator {kind.__name__} cannot be sent to the task managers",
            expected="a spec at the top of a module, with operator = 'module:Class' of what runs it",
            got=f"{path}, operator = '{kind.operator}'",
            remedy="define the class in a module of the package, not inside a function",
        )
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    return RegisteredSpec(type=path, fields=msgspec.json.decode(msgspec.json.encode(fields)))


@functools.lru_cache(maxsize=1024)
def _own(path: str, fields: bytes) -> Spec:
    try:
        spec: Spec = msgspec.json.decode(fields, type=loaded(path))
        return spec
    except msgspec.ValidationError as err:
        raise SpecError(
            f"the operator {path} has other fields here than where the job was planned",
            expected="the same version of its package everywhere",
            got=str(err),
            remedy="install one version of the package, and submit the job again",
        ) from err
