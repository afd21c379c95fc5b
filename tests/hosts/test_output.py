from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opsagent_tools.host import Command, argv
from opsagent_tools.hosts.local import LocalHost
from opsagent_tools.hosts.output import Clip


@given(chunks=st.lists(st.binary(max_size=50), max_size=30), keep=st.integers(2, 100))
def test_head_and_tail_of_any_stream(chunks: list[bytes], keep: int) -> None:
    clip, whole = Clip(keep), b"".join(chunks)
    for chunk in chunks:
        clip.add(chunk)
    assert clip.total == len(whole)
    if len(whole) <= 2 * (keep // 2):
        assert clip.data() == whole
    else:
        half = keep // 2
        assert clip.data().startswith(whole[:half])
        assert clip.data().endswith(whole[-half:])
        assert f"{len(whole) - 2 * half} bytes left out".encode() in clip.data()


@given(text=st.text(min_size=40, max_size=200), keep=st.integers(8, 60))
def test_our_cut_never_makes_a_broken_character(text: str, keep: int) -> None:
    clip = Clip(keep)
    clip.add(text.encode())
    assert "\ufffd" not in clip.text() or "\ufffd" in text


def test_memory_stays_small_with_many_small_chunks() -> None:
    clip = Clip(1000)
    for number in range(100_000):
        clip.add(b"%d\n" % number)
    assert len(clip.data()) < 1100


def test_local_host_keeps_the_same_promises() -> None:
    host = LocalHost()
    assert argv(host, "sh", "-c", "kill -9 $$").exit_code == 137
    assert argv(host, "no-such-program").exit_code == 127
    assert argv(host, "sh", "-c", "echo out; echo err >&2; exit 255").exit_code == 255
    late = argv(host, "sh", "-c", "echo before; sleep 30", timeout_s=0.3)
    assert (late.exit_code, late.timed_out, late.stdout) == (124, True, "before\n")
    pipe = host.run(Command((("cat",), ("wc", "-c")), stdin="x" * 300_000))
    assert pipe.stdout.strip() == "300000"
    many = host.run(Command((("yes",), ("head", "-c", "50000000"))), keep=100)
    assert many.stdout_bytes == 50_000_000
    kept = argv(host, "sh", "-c", "echo started; sleep 30 & exit 3", timeout_s=20)
    assert (kept.exit_code, kept.stdout) == (3, "started\n")
