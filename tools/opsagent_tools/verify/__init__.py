"""Asking a live server whether it is what it should be: over HTTP, with curl on the host where it runs."""
