"""LATERAL TABLE(f(…)) and UNNEST."""
