"""A conversation that ends in runs: the model reads and proposes, the person decides, the run is a run like any other.

The chat has a journal of its own. Its calls go the way of every call (validate, classify, approve, journal) with
approvals off: what is not a read is refused. What changes a host happens in a run, which the person has seen before.
"""
