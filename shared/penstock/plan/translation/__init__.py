"""From the logical plan to operators, one module a family of nodes."""

from penstock.plan.translation.translator import Translator, is_bounded_final

__all__ = ["Translator", "is_bounded_final"]
