"""The operators that Penstock brings along, a folder each.

``<name>/node.py`` holds the plan node with its traits (``penstock.plan.node``), ``<name>/physical.py``
how the node becomes operators. ``penstock.plan.nodes`` collects the nodes for whoever builds plans.
"""
