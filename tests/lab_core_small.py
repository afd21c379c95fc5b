"""A scenario for tests of the lab itself: two machines, one with a container, nothing running."""

SMALL = """
title = "two machines"
runbook = "none"
goal = "none"
speed = 200.0

[roles]
target = "pve"

[hosts.pve]
addresses = ["10.9.0.1"]
pve = "8.4.14"
cards = [{ model = "A6000", count = 2 }]
driver = "580.126.09"
files = { "/root/notes.txt" = "one\\ntwo\\nthree\\n", "/etc/pve/lxc/129.conf" = "arch: amd64\\nhostname: ct129\\nonboot: 1\\n" }

[hosts."pve/ct129"]
parent = "pve"
ctid = 129
ssh = false
os = "ubuntu-24.04"

[hosts.other]
addresses = ["10.9.0.2"]
os = "ubuntu-24.04"
"""  # noqa: E501
