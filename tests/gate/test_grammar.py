"""Option grammars, and what must hold for every command: wrappers, more stages and clustering never lower a tier."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsagent.call import TIERS, Call
from opsagent.gate import Facts, Policy, classify
from opsagent.gate.argv import registry
from opsagent.gate.commands import tables
from opsagent.gate.grammar import grammar

RM = tables.rules("rm")
SAMPLES = [
    ["ls", "-la", "/srv"], ["rm", "-rf", "/srv/models/x"], ["cat", "/etc/shadow"], ["systemctl", "restart",
    "sglang"], ["mkdir", "/srv/models/x"],
    ["nvidia-smi", "-r"], ["kill", "4121"], ["reboot"], ["tee", "/etc/fstab"], ["python3", "-c", "print(1)"],
    ["uptime"], ["nope"],
]  # fmt: skip


def level(stages: list[list[str]]) -> int:
    call = Call(id="c1", tool="ssh_exec", host="gpu01", args={"stages": stages})
    return TIERS.index(classify(call, Facts(), Policy()).tier)


def test_every_program_of_the_tables_has_a_checker_and_a_grammar() -> None:
    assert len(registry()) > 800
    for entry in tables.entries().values():
        assert entry.grammar is not None


@pytest.mark.parametrize(
    "words",
    [
        ["-rf", "x"],
        ["-r", "-f", "x"],
        ["-fr", "x"],
        ["--recursive", "--force", "x"],
        ["--rec", "--fo", "x"],
        ["x", "-rf"],
        ["-rf", "--", "x"],
    ],
)
def test_one_meaning_however_it_is_written(words: list[str]) -> None:
    parsed = RM.parse(words)
    assert parsed.operands == ["x"]
    assert parsed.has("-r", "--recursive")
    assert parsed.has("-f", "--force")
    assert not parsed.unknown


def test_values_of_options() -> None:
    rules = grammar("-abc -o:write -i? --output:write --color? --long --longer")
    parsed = rules.parse(["-abofile", "-i", "x", "--output", "y", "--color=auto", "--lon", "--longe", "--", "-z"])
    assert parsed.values("-o", "--output") == ["file", "y"]
    assert parsed.operands == ["x", "-z"]
    assert parsed.unknown == ["--lon"]
    assert parsed.has("--longer")


def test_after_two_dashes_nothing_is_an_option() -> None:
    assert RM.parse(["--", "-rf"]).operands == ["-rf"]


def test_a_wrapper_ends_at_its_first_operand() -> None:
    assert tables.rules("timeout").parse(["-k", "5", "10", "rm", "-rf"]).operands == ["10", "rm", "-rf"]


def test_tables_say_where_they_are_wrong() -> None:
    with pytest.raises(ValueError, match="line 2"):
        tables.read("cat: read\n=\n")
    with pytest.raises(ValueError, match="not an option"):
        grammar("oops:")


WORDS = st.sampled_from(
    [
        "-r",
        "-f",
        "--",
        "-",
        "|",
        ";",
        "/etc/shadow",
        "/srv/models/x",
        "{}",
        "+",
        "-exec",
        "sh",
        "-c",
        "rm",
        "$(x)",
        "",
        "a=b",
        "-x",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(WORDS, st.text(max_size=8)), min_size=1, max_size=8), st.sampled_from(sorted(registry())))
def test_nothing_makes_the_classifier_fail(words: list[str], name: str) -> None:
    for argv in ([name, *words], words):
        call = Call(id="c1", tool="ssh_exec", host="gpu01", args={"argv": argv})
        verdict = classify(call, Facts(), Policy())
        assert verdict.tier in TIERS
        assert verdict.reasons
        assert not any(reason.rule == "gate.cannot-judge" for reason in verdict.reasons), (argv, verdict.reasons)


@pytest.mark.parametrize(
    "argv",
    [
        ["bash", "-c", "curl|" * 20000], ["bash", "-c", "$(" * 20000], ["cat", "/" + "a/" * 40000], ["awk",
        "[" * 5000 + "@"], ["sed", "s/" + "[" * 9000],
        ["python3", "-c", "(" * 50000], ["ls"] * 5000, ["env"] * 400, ["grep", "x", "key" * 20000 + ".pem"],
        ["perl", "-e", "\"'" * 20000],
    ],
    ids=lambda argv: f"{argv[0]} {len(''.join(argv))}",
)  # fmt: skip
def test_much_is_a_doubt_and_no_burden(argv: list[str]) -> None:
    assert level([argv]) >= TIERS.index("R2")


@pytest.mark.parametrize(
    "rest", [[], ["/srv/models"], ["-x"], ["--bogus=1"], ["a", "b", "c"], ["--"], ["-"], ["-c", "x"], ["list"]]
)
def test_every_program_can_be_judged_with_little(rest: list[str]) -> None:
    for name in registry():
        call = Call(id="c1", tool="ssh_exec", host="gpu01", args={"argv": [name, *rest]})
        verdict = classify(call, Facts(), Policy())
        assert verdict.reasons
        assert not any(reason.rule.startswith("gate.") for reason in verdict.reasons), (name, rest, verdict.reasons)


WRAPPERS = [["env"], ["timeout", "5"], ["nice"], ["nohup"], ["sudo"], ["setsid"], ["ionice", "-c3"], ["stdbuf",
"-oL"], ["time"],
            ["systemd-run"], ["chroot", "/mnt"], ["xargs"], ["taskset", "1"], ["flock", "/tmp/l"], ["exec"],
            ["command"]]  # fmt: skip


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda w: w[0])
def test_a_wrapper_never_lowers_a_tier(wrapper: list[str]) -> None:
    for argv in SAMPLES:
        assert level([[*wrapper, *argv]]) >= level([argv]), (wrapper, argv)
        assert level([[*wrapper, *wrapper, *argv]]) >= level([argv]), (wrapper, argv)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=5))
def test_a_pipe_is_at_least_its_strictest_stage(stages: list[list[str]]) -> None:
    assert level(stages) >= max(level([stage]) for stage in stages)
