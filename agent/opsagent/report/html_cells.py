"""Small pieces of markup for the cells of the report's tables: what they hold is written out and escaped first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from opsagent.html.page import one_line, shown
from opsagent.report.words import change_text

Rows = list[tuple[str | Markup, ...]]


def code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(shown(one_line(text)))


def changes(change: Mapping[str, object]) -> Markup:
    """Options that are set or taken away, each unbroken."""
    words = [change_text({flag: None if value is None else str(value)}) for flag, value in change.items()]
    return Markup(" ").join(Markup('<code class="flag">{}</code>').format(shown(one_line(word))) for word in words)


def strong(text: str) -> Markup:
    return Markup("<strong>{}</strong>").format(shown(one_line(text)))


def tone(text: str, name: str) -> Markup:
    """A word that has a colour too (`good`, `bad`, `warn`, `plain`)."""
    return Markup('<span class="badge {}">{}</span>').format(name, shown(text))


def proof(evidence: Sequence[str], known: set[str]) -> Markup:
    """Links to the excerpts in this file; an event without one is named, not linked."""
    links = [
        Markup('<a class="event" href="#{0}">{0}</a>').format(shown(event))
        if event in known
        else Markup('<span class="event">{}</span>').format(shown(event))
        for event in evidence
    ]
    return Markup(" ").join(links)
