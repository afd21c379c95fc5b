"""Guard of URLs: where a request goes, and whether it could carry something out or change something there."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace

HUBS = re.compile(
    r"(.*\.)?(huggingface\.co|hf\.co|pypi\.org|pythonhosted\.org|github\.com|githubusercontent\.com|nvidia\.com|debian\.org|ubuntu\.com|"
    r"proxmox\.com|modelscope\.cn|pytorch\.org|astral\.sh|sglang\.io)"
)
PROBED = re.compile(
    r"/?|/(health|health_generate|ready|v1/models|metrics|server_info|get_server_info|model_info|get_model_info)"
)
SHORT = re.compile(r"([a-z0-9-]{1,16}\.){1,3}[a-z0-9-]{2,16}")
"""A name that can hardly carry anything out."""
CHANGING = re.compile(
    r"/(flush_cache|abort_request|(pause|continue)_generation|(start|stop)_(profile|expert_.*)|(release|resume)_memory_occupation|"
    r"update_weights.*|init_weights.*|(un)?load_lora.*|set_internal_state|configure_logging|open_session|close_session|shutdown|quit.*|"
    r"reload|restart|stop|kill|delete|reset|drain|exit|terminate|destroy|remove|suspend)(/|$)",
    re.IGNORECASE,
)
INFERENCE = re.compile(
    r"/(v1/(chat/completions|completions|embeddings|rerank|score|responses|models|tokenize|detokenize)|generate|encode|classify|tokenize|detokenize)/?"
)


def local(host: str) -> bool:
    """This machine, or a private network."""
    if host in ("localhost", "ip6-localhost", "") or host.endswith((".localhost", ".local", ".lan", ".internal")):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return "." not in host and re.fullmatch(r"[a-zA-Z0-9-]{1,63}", host) is not None  # no public name has one label
    return address.is_loopback or (address.is_private and not address.is_link_local) or host == "0.0.0.0"


def fetch(t: Trace, url: str, *, method: str = "GET", body: bool = False) -> None:
    """A request is made and its answer printed."""
    paths.doubtful(t, url.replace("&", "")) if "://" in url else None
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        t.say("R3", "url.unreadable", f"{url!r} is not a URL that we can read")
        return
    if parts.scheme == "file":
        paths.read(t, parts.path)
        return
    if parts.scheme not in ("http", "https"):
        t.say("R3", "url.scheme", f"{parts.scheme}:// is not a plain web address")
        return
    if host.startswith("169.254.") or host in ("metadata.google.internal", "metadata") or host.startswith("fd00:ec2"):
        t.say("X", "url.metadata", f"{host} hands out the machine's own credentials")
    if any(c in host for c in "{}[]*$") and not host.startswith("["):
        t.say("R2", "url.pattern", f"{host} is a pattern")
    at_home = local(host)
    if CHANGING.search(parts.path):
        t.say("R2", "url.change", f"{parts.path} changes a running service, whatever the method")
    if method in ("GET", "HEAD", "OPTIONS") and not body:
        probe = PROBED.fullmatch(parts.path) and not parts.query and not parts.username and SHORT.fullmatch(host)
        if at_home or HUBS.fullmatch(host) or (probe and parts.port):
            t.say("R0", "url.get", f"asks {host or 'this machine'}")
        else:
            t.say("R2", "url.foreign", f"asks {host}, a host that we do not know: a request can carry things out")
    elif at_home and method == "POST" and INFERENCE.fullmatch(parts.path):
        t.say("R0", "url.inference", f"asks the model server at {host}")
    elif at_home and CHANGING.search(parts.path):
        return
    else:
        t.say("R3", "url.change", f"{method} {host}{parts.path} can change something there")
