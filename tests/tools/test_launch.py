"""launch_sglang and stop_server on a host with state; the logs are those of real servers."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

from fakes import FakeHost, Script

from opsagent_tools import launch_sglang, stop_server
from opsagent_tools.errors import HostUnreachable, OutcomeUnknown
from opsagent_tools.launch_sglang import LaunchSglangArgs, LaunchSglangResult
from opsagent_tools.stop_server import StopServerArgs
from opsagent_tools.tool import Context, Progress

LOGS = Path(__file__).parent.parent / "data" / "logs"
HEALTHY = "tp2-mrr8-msf82.log"


def timeline(name: str) -> list[tuple[float, str]]:
    """The log as it grew: lines by second after its first time stamp."""
    rows, first, second = [], None, 0.0
    for line in (LOGS / name).read_text(errors="replace").splitlines(True):
        stamp = re.match(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", line)
        if stamp:
            at = datetime.fromisoformat(stamp[1])
            first = first or at
            second = max(second, (at - first).total_seconds())
        rows.append((second, line))
    return rows


def seed_of(name: str) -> int:
    found = re.search(r"random_seed=(\d+)", (LOGS / name).read_text(errors="replace"))
    assert found
    return int(found[1])


def healthy(port: int = 30000) -> Script:
    info = json.dumps({"random_seed": seed_of(HEALTHY), "version": "0.5.11", "api_key": "sk-very-secret"})
    return Script(timeline(HEALTHY), listens=(37.0, port), http={"/server_info": info}, gpu_mib={0: 40000, 1: 40000})


def machine(script: Script) -> FakeHost:
    return FakeHost(script=script, gpus=[("RTX A6000", 49140)] * 2)


def launch(host: FakeHost, seen: list[Progress] | None = None, **args: object) -> LaunchSglangResult:
    ctx = Context("7f3a", "c58", clock=host.clock, progress=(seen if seen is not None else []).append)
    wanted = {"model": "/srv/models/Qwen3.6-27B", "flags": "--tp-size 2", "python": "/opt/sglang/bin/python", **args}
    return launch_sglang.run(host, LaunchSglangArgs.model_validate({"preflight": False, **wanted}), ctx)


def test_ready_when_log_listener_and_seed_agree() -> None:
    seen: list[Progress] = []
    result = launch(host := machine(healthy()), seen, prediction={"limits": {"max_total_num_tokens": 190_000}})
    assert (result.state, result.cause, result.failed) == ("ready", None, False)
    assert (result.limits.max_total_num_tokens, result.limits.max_running_requests) == (190_215, 8)
    assert (result.unit, result.backend, result.pid) == ("opsagent-7f3a-c58", "systemd", 4000)
    assert result.argv[:5] == [
        "/opt/sglang/bin/python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/srv/models/Qwen3.6-27B",
    ]
    assert result.compared[0].name == "max_total_num_tokens"
    assert abs(result.compared[0].error) < 0.002
    assert (result.tp, result.gpus, result.dtype, result.api_key) == (2, ["RTX A6000"] * 2, "bfloat16", False)
    assert result.weights_loaded
    assert result.phase_seconds["weights"] > 0 or result.phase_seconds["graphs"] > 0
    assert "sk-very-secret" not in result.model_dump_json()
    assert {progress.text.split(":")[0] for progress in seen} >= {"graphs", "warm-up"}
    assert "opsagent-7f3a-c58" in host.units


def test_environment_never_appears_in_an_argv() -> None:
    host, secrets = machine(healthy()), list[str]()
    ctx = Context("7f3a", "c58", clock=host.clock, secrets=secrets.append)
    args = {
        "model": "/m",
        "flags": ["--api-key", "sk-1234"],
        "env": {"HF_TOKEN": "hf_abcdefghijklmnopqrst"},
        "preflight": False,
    }
    result = launch_sglang.run(host, LaunchSglangArgs.model_validate(args), ctx)
    assert not any("hf_abcdef" in word for argv in host.commands for word in argv)
    assert "sk-1234" not in result.model_dump_json()
    assert set(secrets) == {"sk-1234", "hf_abcdefghijklmnopqrst"}
    assert not any("HF_TOKEN" in text.decode() for text in host.files.values()), (
        "the env file is removed after the start"
    )


def test_busy_port_is_seen_before_anything_is_loaded() -> None:
    host = machine(healthy())
    host.listeners[30000] = (77, "python3")
    result = launch(host)
    assert (result.state, result.cause, result.weights_loaded) == ("failed", "port-in-use", False)
    assert host.units == {}


def test_port_taken_during_the_load() -> None:
    host = machine(Script(timeline("f-port-busy.log"), gpu_mib={0: 40000}))
    result = launch(host, port=31100)
    assert (result.state, result.cause, result.weights_loaded) == ("failed", "port-in-use", True)
    assert (result.gpu_memory_back, host.used(0)) == (True, 0)


def test_ready_line_that_another_server_caused_is_not_believed() -> None:
    host = machine(healthy())
    host.script.listens = None
    taken = (40.0, "")

    def later(fake: FakeHost, argv: tuple[str, ...], stdin: str) -> tuple[int, str, str]:
        if fake.clock.seconds > taken[0]:
            fake.listeners[30000] = (77, "python3")
            fake.http["30000/server_info"] = json.dumps({"random_seed": 1})
        return ss(fake, argv, stdin)

    from fakes import ss

    host.programs["ss"] = later
    result = launch(host)
    assert (result.state, result.cause) == ("failed", "port-in-use")
    assert "77" in result.words
    assert host.used(0) == 0


def test_seed_of_another_start_is_not_believed() -> None:
    host = machine(healthy())
    host.script.http["/server_info"] = json.dumps({"random_seed": 1})
    result = launch(host)
    assert (result.state, result.cause) == ("failed", "port-in-use")


def test_refused_arguments_are_named_and_cost_no_load() -> None:
    host = machine(Script(timeline("tp1-mtp-noflag.log"), ends=(4.0, 1)))
    result = launch(host)
    assert (result.state, result.cause, result.weights_loaded) == ("failed", "spec-needs-extra-buffer", False)
    assert result.exit_code == 1
    assert result.fix.flags == {"--mamba-scheduler-strategy": "extra_buffer"}


def test_death_while_loading_is_diagnosed_and_memory_comes_back() -> None:
    host = machine(Script(timeline("f-load-oom.log"), ends=(60.0, 137), gpu_mib={0: 30000}))
    result = launch(host)
    assert (result.state, result.exit_code, result.gpu_memory_back) == ("failed", 137, True)
    assert result.cause in ("oom-weight-load", "gpu-memory-occupied")


def test_killed_scheduler() -> None:
    host = machine(Script(timeline("f-scheduler-sigkill.log"), ends=(90.0, 137)))
    assert launch(host).cause == "worker-sigkilled"


def test_silence_without_work_is_stuck_and_is_ended() -> None:
    rows = [row for row in timeline(HEALTHY) if row[0] < 17]
    host = machine(Script(rows, gpu_mib={0: 2000}))
    result = launch(host)
    assert result.state == "stuck"
    assert host.clock.seconds > 300
    assert host.units["opsagent-7f3a-c58"].ended
    assert result.gpu_memory_back


def test_what_is_long_is_what_it_took_before() -> None:
    """A slow disk is known from earlier starts: the expected time is shown, and silence counts against it."""
    rows = [row for row in timeline(HEALTHY) if row[0] < 17]
    host, seen = machine(Script(rows, gpu_mib={0: 2000})), list[Progress]()
    phase = launch(machine(Script(rows)), []).summary.partition("in phase ")[2].partition(":")[0]
    history = {"phase_seconds": {phase: 400.0}}
    ctx = Context("7f3a", "c58", clock=host.clock, progress=seen.append, history=history)
    args = LaunchSglangArgs.model_validate({"model": "/srv/m", "preflight": False})
    result = launch_sglang.run(host, args, ctx)
    assert result.state == "stuck"
    assert host.clock.seconds > 5 * 400
    assert {p.expected_s for p in seen if p.text.startswith(phase)} == {400.0}


def test_silence_while_kernels_compile_is_waited_for() -> None:
    rows = timeline(HEALTHY)
    late = [(second if second < 33 else second + 1200, text) for second, text in rows]
    host = machine(healthy())
    host.script.log, host.script.listens = late, (37.0 + 1200, 30000)
    original = host.processes
    host.processes = lambda: [*original(), (9000, 4000, "/usr/local/cuda/bin/nvcc -c x.cu")]  # type: ignore[method-assign]
    assert launch(host).state == "ready"


def test_lost_link_during_the_load_is_reattached() -> None:
    host = machine(healthy())
    host.faults = [(n, HostUnreachable("refused", where="fake")) for n in (30, 31, 32)]
    host.faults += [(33, OutcomeUnknown("cut", where="fake"))]
    assert launch(host).state == "ready"
    assert host.hits == 4
    assert len(host.units) == 1


def test_unknown_start_is_settled_by_the_unit() -> None:
    host = machine(healthy())
    ctx = Context("7f3a", "c58", clock=host.clock)
    args = LaunchSglangArgs.model_validate({"model": "/m", "preflight": False})
    assert launch_sglang.probe(host, args, ctx) is None
    assert launch(host, wait_s=5).state == "starting"
    found = launch_sglang.probe(host, args, ctx)
    assert found is not None
    assert found.state == "ready"
    assert len(host.units) == 1


def test_stop_of_our_server_gives_the_memory_back() -> None:
    server = launch(host := machine(healthy()))
    result = stop_server.run(host, StopServerArgs(server=server.model_dump(mode="json")), Context(clock=host.clock))
    assert (result.stopped, result.was_running, result.gpu_memory_back, result.failed) == (True, True, True, False)
    assert (host.used(0), host.used(1)) == (0, 0)
    again = stop_server.run(host, StopServerArgs(server=server.model_dump(mode="json")), Context(clock=host.clock))
    assert (again.stopped, again.was_running) == (True, False)


def test_stop_kills_what_does_not_listen_to_term() -> None:
    host = machine(healthy())
    host.script.ignores_term = True
    server = launch(host)
    result = stop_server.run(host, StopServerArgs(unit=server.unit, grace_s=10), Context(clock=host.clock))
    assert result.stopped
    assert host.units[server.unit].ended == (host.units[server.unit].ended or (0, 0))
    assert (host.units[server.unit].ended or (0, 0))[1] == 137


def test_orphaned_scheduler_of_this_server_is_ended() -> None:
    host = machine(healthy())
    host.script.leaves = [4711]
    server = launch(host)
    result = stop_server.run(host, StopServerArgs(server=server.model_dump(mode="json")), Context(clock=host.clock))
    assert (result.stopped, result.left) == (True, [])
    assert 4711 in result.pids
    assert host.processes() == []


def test_pid_that_was_given_to_another_process_is_left_alone() -> None:
    host = machine(healthy())
    server = launch(host)
    args = StopServerArgs(pid=server.pid, started="1")
    result = stop_server.run(host, args, Context(clock=host.clock))
    assert (result.was_running, host.units[server.unit].ended) == (False, None)
