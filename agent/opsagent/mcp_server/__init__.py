"""opsagent for the assistants that people already use: an MCP server whose every call is a call of a run.

Read `session.py` (one server session is one run), then `server.py` (the protocol). Only `server.py` imports the SDK.
"""
