"""The programs of the simulated hosts, one family per file; each file exports `PROGRAMS`."""
