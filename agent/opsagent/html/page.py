"""One self-contained HTML page: escaped, styled, without network, and with no script but the one that is named by its hash.

Text from hosts and models gets here as plain `str`: every expression of every template is first written out where it could
deceive a reader (`fence.neutral`: control characters, bidi, zero width), then escaped. Only `Markup` passes as it is.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from opsagent import fence

POLICY = "default-src 'none'; style-src 'unsafe-inline'; {scripts}img-src data:; base-uri 'none'; form-action 'none'"
"""Content-Security-Policy of a page; `{scripts}` is empty or `script-src` with hashes."""
_FLAG = re.compile(r"(?<![\w-])(--[a-z][\w-]*)")


def page(title: str, body: Markup, *, script: str = "", style: str = "", simulated: str = "", kind: str = "") -> str:
    """A whole document.

    `body` is what goes into `<main>` and around it (a `fragment`). `script` is our own code, never text from elsewhere: the
    policy allows exactly it; `style` is added to the house's sheet. `simulated` names the lab: a banner says so on screen
    and on every printed page. `kind` is a class of the body element (`report`, `transcript`), for rules of the style sheet.
    """
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("a script must not hold </script or <!--")
    return str(
        fragment(
            "base.html.j2",
            title=title,
            body=body,
            style=Markup(source("style.css") + style),
            script=Markup(script),
            policy=POLICY.format(scripts=f"script-src '{script_hash(script)}'; " if script else ""),
            simulated=simulated,
            kind=kind,
        )
    )


def fragment(template: str, **values: Any) -> Markup:
    """The markup of one template of this folder; a value that it names and does not get is an error."""
    return Markup(environment().get_template(template).render(**values))


def script_hash(script: str) -> str:
    """The source expression of the policy that allows this script: `sha256-…`."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def environment() -> Environment:
    """The template environment: escaping is always on, undefined names are errors, values are made harmless."""
    made = Environment(
        loader=PackageLoader("opsagent", "html/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["line"] = one_line
    made.filters["flags"] = flags
    return made


def shown(value: Any) -> Any:
    """A value as a template shows it: nothing for None, plain text without characters that deceive, markup as it is."""
    if value is None:
        return ""
    if hasattr(value, "__html__") or isinstance(value, (bool, int, float)):
        return value
    return fence.neutral(str(value))


def one_line(value: object) -> str:
    """The text on one line (for names, table cells and titles)."""
    return str(value).replace("\r", "\n").replace("\n", " ")


def flags(text: object) -> Markup:
    """Text in which an option (`--max-running-requests`) is not broken after its dashes."""
    pieces = _FLAG.split(fence.neutral(str(text)))
    return Markup("").join(
        Markup('<span class="flag">{}</span>').format(piece) if number % 2 else escape(piece)
        for number, piece in enumerate(pieces)
    )


def source(name: str) -> str:
    """A file of this folder as it is: a style sheet, a script."""
    environment_loader = environment().loader
    assert environment_loader is not None
    return environment_loader.get_source(environment(), name)[0]
