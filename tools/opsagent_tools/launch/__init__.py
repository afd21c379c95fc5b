"""How a server is started and followed: its command, the log until it is ready or not, and whether it is really ours."""
