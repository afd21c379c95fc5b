"""Who else watches a run, besides the screen: notifications and telemetry, when they are configured.

They see the journal's events after these are stored. Whatever goes wrong in them is theirs: the run goes on, and a note in
its journal says what was lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from opsagent.call import Call
from opsagent.config import Layer, layers
from opsagent.protocols import Event
from opsagent.run import Run, Watcher
from opsagent_tools.errors import InputError, OpsError
from opsagent_tools.tool import Progress

if TYPE_CHECKING:
    from opsagent.session import Wish

GRACE_S = 60.0
"""A person at the terminal is asked there first."""


class Observer(Watcher, Protocol):
    """A watcher that has to be given time at the end."""

    def close(self) -> list[str]:
        """Finish, in bounded time. Returns what was lost, in words."""
        ...


@dataclass
class Observed:
    """Tells the screen first, then the observers; one that fails is told nothing more."""

    screen: Watcher
    observers: list[Observer] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def on_event(self, event: Event) -> None:
        self.screen.on_event(event)
        for observer in tuple(self.observers):
            try:
                observer.on_event(event)
            except Exception as error:  # a fault of an observer is never one of the run
                self.observers.remove(observer)
                self.lost.append(f"{type(observer).__name__} stopped at {event.id}: {type(error).__name__}: {error}")

    def on_progress(self, call: Call, progress: Progress) -> None:
        self.screen.on_progress(call, progress)

    def close(self) -> list[str]:
        """Close all of them. Returns what was lost."""
        observers, self.observers = self.observers, []
        for observer in observers:
            try:
                self.lost += observer.close()
            except Exception as error:
                self.lost.append(f"{type(observer).__name__}: {type(error).__name__}: {error}")
        lost, self.lost = self.lost, []
        return lost


def check(env: Mapping[str, str] | None = None) -> None:
    """Raises InputError for tables of the configuration that cannot be: before a run exists."""
    from opsagent.telemetry.settings import settings_of
    from opsagent.webhook import webhook_of

    env, found = os.environ if env is None else env, layers()
    settings_of(found, env)
    try:
        webhook_of(found, env)
    except InputError:
        raise
    except OpsError:
        return  # it cannot be used now, which is said when the run begins


def observed(run: Run, wish: Wish, env: Mapping[str, str] | None = None) -> Observed:
    """The run's watcher together with the observers that the configuration names.

    What keeps one from working is a line to the operator and a note, never the end of the run. Raises InputError for a
    configuration that cannot be read, like the gate does.
    """
    env = os.environ if env is None else env
    watcher, found = Observed(run.watcher), layers()
    for make in (_notifier, _telemetry):
        try:
            observer = make(run, wish, found, env)
        except InputError:
            raise
        except OpsError as error:
            wish.notice(f"{error.what} ({error.hint})" if error.hint else error.what)
            watcher.lost.append(error.what)
        else:
            watcher.observers += [observer] if observer is not None else []
    return watcher


def _notifier(run: Run, wish: Wish, found: list[Layer], env: Mapping[str, str]) -> Observer | None:
    if not any(layer.notify for layer in found):
        return None
    from opsagent.approving import asks_person
    from opsagent.notify import Notifier
    from opsagent.webhook import webhook_of

    hook = webhook_of(found, env)
    if hook is None:
        return None
    run.secrets(hook.url)
    return Notifier(
        hook, lambda: run.journal.state, lambda text: run.journal.redactor.clean(text),
        answers_itself=wish.places.simulated and not wish.approve, grace_s=GRACE_S if asks_person(wish) else 0.0,
    )  # fmt: skip


def _telemetry(run: Run, wish: Wish, found: list[Layer], env: Mapping[str, str]) -> Observer | None:
    from opsagent.telemetry.settings import settings_of

    settings = settings_of(found, env)
    if settings is None:
        return None
    from opsagent.telemetry.export import exporter

    return exporter(settings, lambda: run.journal.state)
