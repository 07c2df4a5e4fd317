"""Connectors: how data enters and leaves. ``base`` is the public interface."""
