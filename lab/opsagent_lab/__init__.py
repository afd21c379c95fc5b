"""Simulated GPU hosts behind a real SSH server on loopback."""
