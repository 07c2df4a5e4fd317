"""The conformance kits: one class for each port. docs/extending/ has an example of each."""

from penstock.testing.conformance.base import Conformance, Failure, run_kit
from penstock.testing.conformance.format import FormatConformance
from penstock.testing.conformance.functions import (
    AggregateConformance,
    ScalarConformance,
    TableConformance,
)
from penstock.testing.conformance.keyed_state import KeyedStateConformance
from penstock.testing.conformance.lookup import LookupConformance
from penstock.testing.conformance.provider import ProviderConformance
from penstock.testing.conformance.sink import SinkConformance
from penstock.testing.conformance.source import BadTable, SourceConformance
from penstock.testing.conformance.state import StateBackendConformance
from penstock.testing.conformance.stores import LeaseStoreConformance, ObjectStoreConformance

__all__ = [
    "AggregateConformance",
    "BadTable",
    "Conformance",
    "Failure",
    "FormatConformance",
    "KeyedStateConformance",
    "LeaseStoreConformance",
    "LookupConformance",
    "ObjectStoreConformance",
    "ProviderConformance",
    "ScalarConformance",
    "SinkConformance",
    "SourceConformance",
    "StateBackendConformance",
    "TableConformance",
    "run_kit",
]
