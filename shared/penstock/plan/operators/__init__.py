"""The operators that Penstock brings, one folder each.

``<name>/node.py`` holds the plan node with its traits (``penstock.plan.node``); ``<name>/physical.py`` turns
the node into operators. ``penstock.plan.nodes`` collects the nodes for code that builds plans.
"""
