"""Pages that people open in a browser: one template environment, one style sheet, one self-contained page."""

from opsagent.html.page import fragment, page, script_hash

__all__ = ["fragment", "page", "script_hash"]
