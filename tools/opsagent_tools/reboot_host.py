"""The tool `reboot_host`: reboot, wait, and prove it by the boot id. The lost link is expected here."""

from __future__ import annotations

from pydantic import Field

from opsagent_tools.errors import HostError, HostUnreachable, InputError, OutcomeUnknown, ToolFailed
from opsagent_tools.host import Host, argv
from opsagent_tools.tool import Args, Context, Progress, Result, Tool

BOOT_ID = "/proc/sys/kernel/random/boot_id"
POLL_S = 5.0


class RebootHostArgs(Args):
    reason: str = Field(min_length=3, description="Why, in words for the operator and for the host's own log.")
    wait_s: float = Field(default=900, gt=0, le=3600, description="Seconds to wait until it answers again.")


class RebootHostResult(Result):
    rebooted: bool
    """True when it answers with another boot id than before."""
    boot_id_before: str
    boot_id_after: str
    """Empty while it does not answer."""
    waited_s: float

    @property
    def failed(self) -> bool:
        return not self.rebooted


def boot_id(host: Host) -> str:
    """The kernel's id of this boot. Raises HostError when the host does not answer, ToolFailed when it does not say."""
    done = argv(host, "cat", BOOT_ID, timeout_s=20)
    if not done.ok or not done.stdout.strip():
        raise ToolFailed(
            f"no boot id: {done.stderr.strip()[:200]}", where=host.name, hint="a reboot could not be proved"
        )
    return done.stdout.strip()


def run(host: Host, args: RebootHostArgs, ctx: Context | None = None) -> RebootHostResult:
    """Reboot and wait. A host that does not come back is a result (`rebooted` false), not an error."""
    ctx = ctx or Context()
    if host.name == "local":
        raise InputError(
            "this machine cannot reboot itself and wait for it", hint="reboot it by hand, then resume the run"
        )
    before, began = boot_id(host), ctx.clock.now()
    try:
        done = argv(host, "systemctl", "reboot", timeout_s=30)
        if not done.ok:
            raise ToolFailed(
                f"systemctl reboot: {done.stderr.strip()[:200]}", where=host.name, hint="nothing was rebooted"
            )
    except OutcomeUnknown:
        pass  # the link may go before the answer comes
    after = _wait(host, before, args, ctx, began)
    waited = ctx.clock.now() - began
    words = f"rebooted, back after {waited:.0f} s" if after else f"did not come back within {args.wait_s:.0f} s"
    return RebootHostResult(
        rebooted=bool(after), boot_id_before=before, boot_id_after=after, waited_s=round(waited, 1),
        cause=None if after else "host-did-not-come-back", summary=f"{host.name} {words}",
    )  # fmt: skip


def _wait(host: Host, before: str, args: RebootHostArgs, ctx: Context, began: float) -> str:
    """The new boot id; '' when time is up. A changed host key is not waited away.

    A stop of the run is no reason to leave: before the host is back there is no point from which anybody could go on.
    """
    while ctx.clock.now() - began < args.wait_s:
        ctx.clock.sleep(POLL_S)
        try:
            now = boot_id(host)
        except (HostUnreachable, OutcomeUnknown, ToolFailed) as error:
            state = "down" if isinstance(error, HostUnreachable) else "starting"
        except HostError:
            raise
        else:
            if now != before:
                return now
            state = "still shutting down"
        ctx.progress(Progress(f"{host.name} is {state}", ctx.clock.now() - began, args.wait_s, "s"))
    return ""


TOOL = Tool(
    name="reboot_host",
    description=(
        "Reboot a host and wait until it answers with another boot id. All that runs there ends, containers too. "
        "Needs approval by name; say why in `reason`."
    ),
    args=RebootHostArgs,
    result=RebootHostResult,
    run=run,
    tier="R3",
    recovery="non_retriable",
)
