"""What a machine says about itself: GPUs, network, processes, containers, disks. Each file runs a few read-only programs
on a host and parses their output; the parsers are functions of text and can be used alone.
"""
