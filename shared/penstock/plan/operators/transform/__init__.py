"""An operation of the DataStream API."""
