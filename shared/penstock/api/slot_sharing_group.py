"""``SlotSharingGroup``: steps that may share slots, under Flink's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.errors import SpecError, UnsupportedError


@dataclass(frozen=True, order=True)
class MemorySize:
    """An amount of memory of ``bytes_size`` bytes."""

    bytes_size: int

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """``mebi_bytes`` MiB."""
        return MemorySize(mebi_bytes << 20)

    def get_bytes(self) -> int:
        """Bytes."""
        return self.bytes_size

    def get_kibi_bytes(self) -> int:
        """Whole KiB; the rest is cut."""
        return self.bytes_size >> 10

    def get_mebi_bytes(self) -> int:
        """Whole MiB; the rest is cut."""
        return self.bytes_size >> 20

    def get_gibi_bytes(self) -> int:
        """Whole GiB; the rest is cut."""
        return self.bytes_size >> 30

    def get_tebi_bytes(self) -> int:
        """Whole TiB; the rest is cut."""
        return self.bytes_size >> 40

    def __str__(self) -> str:
        return f"{self.bytes_size} bytes"


@dataclass(frozen=True)
class SlotSharingGroup:
    """The group ``name`` with the ``resources`` that its slots should have. ``builder`` makes one."""

    name: str
    resources: dict[str, Any] = field(default_factory=dict)

    def get_name(self) -> str:
        """The name."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """Cores of a slot; None if not set."""
        return self.resources.get("cpu_cores")

    def get_task_heap_memory(self) -> MemorySize | None:
        """Memory of Java's heap; None if not set."""
        return self.resources.get("task_heap_memory")

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Memory outside Java's heap; None if not set."""
        return self.resources.get("task_off_heap_memory")

    def get_managed_memory(self) -> MemorySize | None:
        """Memory that Flink manages; None if not set."""
        return self.resources.get("managed_memory")

    def get_external_resources(self) -> dict[str, float]:
        """Amounts of other resources by name."""
        return dict(self.resources.get("external_resources", {}))

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """A builder of the group ``name``."""
        return SlotSharingGroup.Builder(name)

    def checked_name(self) -> str:
        """The name, for a step that is put into the group.

        Raises:
            UnsupportedError: The group asks for resources: the slots of a cluster are all alike.
        """
        if self.resources:
            raise UnsupportedError(
                f"resources of the slot sharing group '{self.name}'",
                expected="a group without resources: all slots of a cluster are alike",
                got=", ".join(sorted(self.resources)),
                remedy="leave them out; state.backend.memory.per-slot bounds the state of every slot",
            )
        return self.name

    class Builder:
        """Collects the resources of the group ``name``."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._resources: dict[str, Any] = {}

        def _set(self, resource: str, amount: Any) -> SlotSharingGroup.Builder:
            self._resources[resource] = amount
            return self

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set the cores of a slot to ``cpu_cores``, above 0."""
            if not cpu_cores > 0:
                raise SpecError("not a number of cores", expected="> 0", got=repr(cpu_cores))
            return self._set("cpu_cores", cpu_cores)

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the memory of Java's heap to ``task_heap_memory``, above 0."""
            if not task_heap_memory.bytes_size > 0:
                raise SpecError("not an amount of heap", expected="> 0 bytes", got=str(task_heap_memory))
            return self._set("task_heap_memory", task_heap_memory)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the memory of Java's heap to ``task_heap_memory_mb`` MiB."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the memory outside Java's heap to ``task_off_heap_memory``."""
            return self._set("task_off_heap_memory", task_off_heap_memory)

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the memory outside Java's heap to ``task_off_heap_memory_mb`` MiB."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the memory that Flink manages to ``managed_memory``."""
            return self._set("managed_memory", managed_memory)

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the memory that Flink manages to ``managed_memory_mb`` MiB."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set the amount of the resource ``name`` to ``value``."""
            known = {**self._resources.get("external_resources", {}), name: value}
            return self._set("external_resources", known)

        def build(self) -> SlotSharingGroup:
            """The group.

            Raises:
                SpecError: Some resources are set, but not the cores and the heap.
            """
            if self._resources and not {"cpu_cores", "task_heap_memory"} <= set(self._resources):
                raise SpecError(
                    "resources without cores and heap",
                    expected="set_cpu_cores(…) and set_task_heap_memory(…), or no resource at all",
                    got=", ".join(self._resources),
                )
            return SlotSharingGroup(self._name, dict(self._resources))
