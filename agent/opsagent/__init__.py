"""The agent: loop, models, runbooks, gate, journal and report."""

__version__ = "0.1.0"
