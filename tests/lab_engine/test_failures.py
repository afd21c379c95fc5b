"""Launches that fail: which way, with which words and exit codes, and what is left."""

from __future__ import annotations

from typing import Any

import pytest
from lab_engine.support import Lab, lab, mask, real

from opsagent_lab.state import Node

SPEC = [
    *("--tp", "2", "--context-length", "32768", "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "2"),
]
EXTRA = ["--mamba-scheduler-strategy", "extra_buffer"]


def _fails(it: Lab, *flags: str) -> tuple[int, str]:
    sim = it.start(*flags)
    text = it.until("NEVER", sim)
    code = it.ended(sim)
    assert it.world.bugs == []
    assert it.host.processes == {}
    return code, text


ARGUMENTS: list[tuple[list[str], str]] = [
    (SPEC, "is not compatible with radix cache when using --mamba-scheduler-strategy no_buffer"),
    ([*SPEC, *EXTRA, "--disable-radix-cache"], "mamba extra_buffer is not compatible with --disable-radix-cache"),
    (
        ["--tp", "2", "--speculative-algorithm", "NEXTN", *EXTRA, "--speculative-num-steps", "1"],
        "'>' not supported between",
    ),
    (["--tp", "2", "--speculative-algorithm", "NEXTN", *EXTRA, "--speculative-eagle-topk", "1"], "AssertionError"),
    (["--tp", "2", "--context-length", "500000"], "is greater than the derived context_length (262144)"),
    (["--tp", "2", *EXTRA, "--page-size", "48"], "must be divisible by page_size 48"),
    (["--tp", "2", *EXTRA, "--mamba-track-interval", "1", *SPEC[4:]], "must be greater than or equal to"),
    (["--tp", "2", "--attention-backend", "trtllm_mla"], "only supported on Blackwell GPUs"),
]


@pytest.mark.parametrize(("flags", "words"), ARGUMENTS)
def test_arguments_are_refused_before_a_gpu_is_touched(flags: list[str], words: str) -> None:
    code, text = _fails(lab(), *flags)
    assert code == 1
    assert words in text
    assert "Load weight begin" not in text


USAGE = [
    ("0.5.11", ["--max-model-len", "32768"], "sglang serve: error: unrecognized arguments: --max-model-len 32768"),
    ("0.5.23", EXTRA, "sglang serve: error: unrecognized arguments: --mamba-scheduler-strategy extra_buffer"),
    ("0.5.11", ["--port", "abc"], "sglang serve: error: argument --port: invalid int value: 'abc'"),
    (
        "0.5.9",
        ["--reasoning-parser", "qwen9"],
        "launch_server.py: error: argument --reasoning-parser: invalid choice: 'qwen9'",
    ),
    ("0.5.11", ["--enable"], "sglang serve: error: ambiguous option: --enable could match"),
]


@pytest.mark.parametrize(("version", "flags", "words"), USAGE)
def test_argparse_ends_a_launch_with_status_2(version: str, flags: list[str], words: str) -> None:
    code, text = _fails(lab(version=version), *flags)
    assert code == 2
    assert text.splitlines()[-1].startswith(words)


def test_a_parser_that_does_not_exist_prints_the_real_usage_text() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    _code, text = _fails(it, "--tool-call-parser", "qwen3_codr")
    assert text.splitlines()[3:] == [line for line in real("f-parser-typo")[5:] if line]


MEMORY: list[tuple[dict[str, Any], list[str], str, str]] = [
    ({}, [*SPEC[:4], *EXTRA, "--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3", "--speculative-eagle-topk",
          "1", "--speculative-num-draft-tokens", "4"], "Not enough memory. Please try to increase", "Load weight end"),
    ({"cards": 1}, [], "CUDA out of memory. Tried to allocate", "Load weight begin"),
    ({"repo": "Qwen/Qwen3-8B", "cards": 1}, ["--mem-fraction-static", "0.3"], "Not enough memory", "Load weight end"),
    ({"repo": "Qwen/Qwen3-8B", "cards": 1}, ["--mem-fraction-static", "0.999", "--disable-cuda-graph"], "CUDA out of memory",
     "Load weight end"),
    ({"repo": "Qwen/Qwen3-8B", "cards": 1}, ["--mem-fraction-static", "0.97", "--max-running-requests", "64"],
     "Capture cuda graph failed: CUDA out of memory", "Memory pool end"),
    ({}, [*SPEC, *EXTRA, "--mem-fraction-static", "0.70"], "capture_bs=[0]", "Memory pool end"),
]  # fmt: skip


@pytest.mark.parametrize(("how", "flags", "words", "phase"), MEMORY)
def test_memory_fails_in_its_phase(how: dict[str, Any], flags: list[str], words: str, phase: str) -> None:
    code, text = _fails(lab(**how), *flags)
    assert code == 137
    assert words in text
    assert text.index(phase) < text.index(words)
    assert "Received sigquit from a child process" in text


def test_a_neighbour_on_the_card_is_named_in_the_words_of_torch() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    other = it.world.add_process(it.host, ["python", "train.py"], gpu_mib={"GPU-0": 40000})
    sim = it.start()
    text = it.until("NEVER", sim)
    assert it.ended(sim) == 137
    assert f"Process {other.pid} has 39.06 GiB memory in use." in text
    assert list(it.host.processes) == [other.pid]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"truncated": ("model-00003-of-00005.safetensors",)}, "incomplete metadata, file not fully covered"),
        ({"missing": ("config.json",)}, "Should have a `model_type` key"),
    ],
)
def test_damaged_checkpoints(how: dict[str, Any], words: str) -> None:
    _code, text = _fails(lab("Qwen/Qwen3-8B", cards=1, **how))
    assert words in text


def test_a_pointer_file_is_no_weight_file() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3300000000\n"
    files = it.world.files(it.host)
    files.put("/srv/models/m/model-00002-of-00005.safetensors", Node(data=pointer, size=len(pointer)))
    _code, text = _fails(it)
    assert "SafetensorError" in text


def test_a_missing_shard_loads_silently_and_answers_garbage() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1, missing=("model-00004-of-00005.safetensors",))
    it.until("ready to roll", it.start())
    body = {"messages": [{"role": "user", "content": "What is 2+2?"}], "max_tokens": 40}
    message = it.post(body | {"chat_template_kwargs": {"enable_thinking": False}})["choices"][0]["message"]
    assert set(message["content"]) == {"!"}


def test_an_environment_for_another_gpu_has_no_kernels() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    it.host.venvs["/opt/sglang"].arch_list = ["sm_120"]
    code, text = _fails(it)
    assert code == 137
    assert "with CUDA capability sm_86 is not compatible with the current PyTorch installation" in text
    assert "no kernel image is available for execution on the device" in text


def test_more_ranks_than_cards() -> None:
    _code, text = _fails(lab("Qwen/Qwen3-8B", cards=1), "--tp", "2")
    assert "invalid device ordinal" in text


def test_heads_that_do_not_divide() -> None:
    _code, text = _fails(lab("Qwen/Qwen3-8B", cards=3), "--tp", "3")
    assert "AssertionError" in text


def test_the_kernels_oom_killer_takes_a_scheduler() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1, settings={"engine": {"oom_kill": 1}})
    code, text = _fails(it)
    assert code == 1
    assert "Rank 0 scheduler died during initialization (exit code: -9)" in text
    assert any("Out of memory: Killed process" in line for _at, line in it.host.dmesg)
    theirs = [mask(line) for line in real("f-scheduler-sigkill") if line.startswith(("Runtime", "EOF", "  File"))]
    ours = [mask(line) for line in text.replace("/opt/sglang/lib/python3.12/site-packages", "SITE").splitlines()]
    assert [line for line in theirs if line.startswith("Runtime")] == [
        line for line in ours if line.startswith("Runtime")
    ]


def test_a_scheduler_killed_while_serving_takes_the_server_with_it() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    sim = it.start()
    it.until("ready to roll", sim)
    victim = next(p for p in it.host.processes.values() if p.title == "sglang::scheduler")
    it.world.signal(it.host, victim.pid, 9)
    assert it.ended(sim) == 137
    assert "crashed with exit code -9" in it.log()


def test_a_busy_port_is_found_after_the_whole_load_and_another_sglang_makes_it_lie() -> None:
    it = lab("Qwen/Qwen3-8B", cards=2)
    first = it.start(log="/root/first.log")
    it.until("ready to roll", first, "/root/first.log")
    second = it.start("--base-gpu-id", "1")
    text = it.until("NEVER", second)
    assert it.ended(second) == 3
    assert text.index("max_total_num_tokens=") < text.index("[Errno 98]") < text.index("ready to roll")


def test_a_busy_port_of_a_silent_program_hangs_and_dies() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    other = it.world.add_process(it.host, ["nc", "-l", "30000"])
    from opsagent_lab.network import Listener

    assert it.world.listen(Listener("gpu", "127.0.0.1", 30000, other.pid))
    sim = it.start()
    text = it.until("NEVER", sim)
    assert it.ended(sim) == 137
    assert "Waiting for application shutdown" in text
    assert "ready to roll" not in text


def test_no_sglang_in_this_python() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1)
    code, _out, err = it.call("/usr/bin/python3", "-m", "sglang.launch_server", "--model-path", "/srv/models/m")
    assert code == 1
    assert "No module named 'sglang'" in err


def test_without_peer_access_the_first_collective_hangs() -> None:
    it = lab()
    it.host.gpus[0].p2p = False
    sim = it.start("--tp", "2", *EXTRA)
    it.until("sglang is using nccl", sim)
    before = it.world.now()
    while it.world.now() < before + 600:
        pass
    assert "Init torch distributed ends" not in it.log()
    it.world.signal(it.host, sim.pid, 9)
    assert it.ended(sim) == 137
    good = it.world.spawn(
        it.host,
        ["/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "/srv/models/m", "--tp", "2", *EXTRA],
        env={"NCCL_P2P_DISABLE": "1"},
        log="/root/good.log",
    )
    assert "ready to roll" in it.until("ready to roll", good, "/root/good.log")


def test_flashinfer_needs_a_compiler_where_nothing_is_prebuilt() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1, settings={"engine": {"needs_nvcc": True}})
    code, text = _fails(it)
    assert code == 137
    assert "Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist" in text
    sim = it.start("--attention-backend", "triton", log="/root/good.log")
    assert "ready to roll" in it.until("ready to roll", sim, "/root/good.log")


def test_an_fp8_checkpoint_has_no_kernels_on_an_ampere_card() -> None:
    _code, text = _fails(lab("Qwen/Qwen3.6-27B-FP8"), "--tp", "2", *EXTRA)
    assert "type fp8e4nv not supported in this architecture" in text


def test_nextn_without_mtp_layers_loads_the_model_twice_and_needs_the_room() -> None:
    spec = ["--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1", "--speculative-eagle-topk", "1"]
    spec += ["--speculative-num-draft-tokens", "2"]
    it = lab("Qwen/Qwen3-8B", cards=1)
    sim = it.start(*spec, "--mem-fraction-static", "0.55")
    assert it.until("ready to roll", sim).count("type=Qwen3ForCausalLM") == 2
    _code, text = _fails(lab("Qwen/Qwen3-8B", cards=1), *spec, "--mem-fraction-static", "0.8")
    assert text.count("Load weight begin") == 2
    assert "CUDA out of memory" in text


def test_059_stays_up_without_its_scheduler_and_answers_nothing() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1, version="0.5.9")
    sim = it.start()
    it.until("ready to roll", sim)
    victim = next(p for p in it.host.processes.values() if p.title == "sglang::scheduler")
    it.world.signal(it.host, victim.pid, 9)
    it.call("curl", "-sS", "http://127.0.0.1:30000/v1/models")
    body = '{"messages": [{"role": "user", "content": "2+2="}]}'
    words = ("-H", "Content-Type: application/json", "-d", body, "http://127.0.0.1:30000/v1/chat/completions")
    for _ in range(200):
        if it.call("curl", "-sS", "-m", "30", *words)[0] == 28:
            break
    else:
        raise AssertionError("it still answers")
    health = it.call("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:30000/health")
    assert health[1] == "503"
    assert sim.pid in it.host.processes


def test_059_names_a_dead_scheduler_in_other_words() -> None:
    it = lab("Qwen/Qwen3-8B", cards=1, version="0.5.9", settings={"engine": {"oom_kill": 1}})
    code, text = _fails(it)
    assert code == 1
    assert "Rank 0 scheduler is dead. Please check if there are relevant logs." in text
    assert "Exit code: -9" in text
