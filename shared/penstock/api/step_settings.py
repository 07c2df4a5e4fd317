"""The settings of a step: its name, its uid, how and where it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from typing import Self

    from penstock.api.slot_sharing_group import SlotSharingGroup
    from penstock.api.transformations import Transformation


class StepSettings:
    """The settings of a stream's step, ``step``, which made the stream. Each method returns the stream."""

    def __init__(self, step: Transformation) -> None:
        self._step = step

    def get_name(self) -> str:
        """The step's name."""
        return self._step.name

    def name(self, name: str) -> Self:
        """Name the step as plans and the dashboard show it."""
        self._step.name = name
        return self

    def uid(self, uid: str) -> Self:
        """Name the step's state: a later version of the program finds it by ``uid`` in a savepoint.

        Raises:
            UnsupportedError: The step has no settings (a collection, a union).
        """
        return self._set("uid", uid)

    def set_parallelism(self, parallelism: int) -> Self:
        """Run the step in ``parallelism`` subtasks.

        Raises:
            SpecError: ``parallelism`` is below 1.
            UnsupportedError: The step has no settings.
        """
        if parallelism < 1:
            raise SpecError("not a parallelism", expected=">= 1", got=str(parallelism))
        if self._step.alone and parallelism == 1:
            return self
        return self._set("parallelism", parallelism)

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Put the step into the slot sharing group ``slot_sharing_group``, a name or a ``SlotSharingGroup``, in slots of
        its own.

        Raises:
            UnsupportedError: The group asks for resources.
        """
        name = (
            slot_sharing_group if isinstance(slot_sharing_group, str) else slot_sharing_group.checked_name()
        )
        return self._set("slot_sharing_group", name)

    def disable_chaining(self) -> Self:
        """Do not chain the step with the one before it. A vertex begins here."""
        return self._set("chain", False)

    start_new_chain = disable_chaining

    def _set(self, attribute: str, value: Any) -> Self:
        if attribute == "uid":
            step = self._step.stands_for or self._step
            if step.takes_uid:
                step.uid = value
                return self
        if not self._step.configurable:
            raise UnsupportedError(
                f"{attribute} cannot be set on '{self._step.name}'",
                expected="a step of your own functions",
                remedy="set it on the map, process or window step before or after it",
            )
        setattr(self._step, attribute, value)
        return self

    def force_non_parallel(self) -> Self:
        """Run the step in one subtask."""
        return self.set_parallelism(1)

    def set_description(self, description: str) -> Self:
        """Give the step a longer name. Penstock has no separate description: this replaces the name that
        plans and the dashboard show."""
        return self.name(description)


class DataStreamSink:
    """A sink of the job. The methods change the settings of its step and return the sink."""

    def __init__(self, step: Transformation) -> None:
        self._step = step

    def name(self, name: str) -> DataStreamSink:
        """Name the sink as plans and the dashboard show it."""
        self._step.name = name
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Name the sink's state: a later version of the program finds it by ``uid`` in a savepoint."""
        self._step.uid = uid
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Run the sink in ``parallelism`` subtasks."""
        self._step.parallelism = parallelism
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """Give the sink a longer name. Penstock has no separate description: this replaces the name that
        plans and the dashboard show."""
        return self.name(description)
