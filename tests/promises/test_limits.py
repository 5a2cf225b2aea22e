"""Bounds on memory, processes, disk, temporary files and output."""

import json

import pytest
from tests.promises.needs import Fence
from tests.promises.product import Product, says

SOFT = "--soft-limits"
TAKE = """import time
data = bytearray(400 << 20)
for place in range(0, len(data), 4096): data[place] = 1
time.sleep(20)
print('taken')"""
"""Holds the memory for a while: a watched limit is looked at four times a second."""


def test_memory(product: Product, fence: Fence) -> None:
    """A command that takes more memory than `--memory` allows is ended, and does not get it."""
    ended = product("exec", *fence, "--memory", "100m", SOFT, "--", "python3", "-c", TAKE)
    assert ended.code != 0
    assert "taken" not in ended.out


def test_memory_in_files(product: Product) -> None:
    """What is written to the memory's file systems counts as memory, or ends at their own bound."""
    ended = product.shell("head -c 400000000 /dev/zero > /dev/shm/x && echo taken", "--memory", "100m", SOFT)
    assert "taken" not in ended.out


def test_processes(product: Product, fence: Fence) -> None:
    """A command cannot start more processes than `--pids` allows."""
    script = "for i in $(seq 60); do sleep 30 & done 2>/dev/null; grep -ls slee[p] /proc/[0-9]*/comm | wc -l"
    ended = product.shell(script, *fence, "--pids", "30", SOFT)
    counts = [int(word) for word in ended.out.split()]
    assert ended.code != 0 or counts[0] < 31


def test_disk(product: Product) -> None:
    """A command that lets the workspace grow beyond `--disk` is ended."""
    script = "for i in $(seq 300); do head -c 1000000 /dev/zero > grown$i; sleep 0.1; done; echo whole"
    ended = product.shell(script, "--disk", "5m", SOFT)
    assert ended.code != 0
    assert "whole" not in ended.out


def test_one_large_file(product: Product) -> None:
    """A command that writes one file beyond `--disk` ends as one with many files does: by the limit, which is named."""
    ended = product("exec", "--disk", "5m", SOFT, "--", "dd", "if=/dev/zero", "of=big", "bs=1M", "count=20")
    assert ended.code != 0
    assert "the command was ended by the limit on disk; raise it with --disk" in ended.err


def test_temporary_files(product: Product, fence: Fence) -> None:
    """The private /tmp has the size that `sandbox.tmp` says."""
    product.configure(product.settings, sandbox={"tmp": "8m"})
    ended = product.shell("head -c 20000000 /dev/zero > /tmp/x && echo whole", *fence, SOFT)
    assert "whole" not in ended.out


def test_the_agent_goes_on_after_a_limit(product: Product) -> None:
    """A command of an agent's that memory ends is a result for it; the run goes on, and the record says why."""
    command = f'python3 -c "{TAKE}"'
    turns = [says("", command), says("", "echo still here"), says("I tried another way.")]
    assert product.run(product.script(*turns), "--memory", "100m", SOFT).ends_as("unverified")
    first, second = product.recorded("tool.returned")
    assert json.loads(first["content"])["exit_code"] != 0
    assert "still here" in second["content"]


def test_output_for_the_model(product: Product) -> None:
    """The model is given the beginning and the end of a long output, and how much was cut."""
    turns = [says("", "echo first; seq 200000; echo last"), says("I see.")]
    assert product.run(product.script(*turns)).ends_as("unverified")
    content = product.recorded("tool.returned")[0]["content"]
    assert len(content) < 40_000
    assert "first" in content
    assert "last" in content


def test_the_effective_limits_are_recorded(product: Product) -> None:
    """The record has the limits that held, and who enforced each."""
    product.exec("true")
    policy = product.recorded("sandbox.created")[0]["policy"]
    assert policy["limits"]["pids"] == 512
    assert set(policy["enforced"].values()) <= {"kernel", "soft", "none"}


def test_a_limit_that_nobody_enforces(product: Product) -> None:
    """A limit that was asked for and that the kernel cannot enforce is refused, unless a watchdog is accepted."""
    if product.does("policy show", "--json").json["enforced"]["memory"] == "kernel":
        pytest.skip("the kernel enforces limits here")
    assert product("exec", "--memory", "100m", "--", "true").code != 0
    product.does("exec", "--memory", "100m", SOFT, "--", "true")


def test_what_was_made_until_a_limit_is_kept(product: Product) -> None:
    """What an agent made before a limit is in the workspace, and `diff` shows it."""
    turns = [says("", "echo x > made"), says("", "echo y > later"), says("done")]
    assert product.run(product.script(*turns), "--max-turns", "1").ends_as("limit")
    assert (product.project / "made").exists()
    assert "made" in product.does("diff", "last", "--stat").out


def test_a_limit_on_cost_needs_a_price(product: Product) -> None:
    """A limit on cost for a model without a known price is refused, never guessed; `prices` gives one."""
    file = product.place / "free.yaml"
    file.write_text(json.dumps({"turns": [says("done")]}))
    words = (f"scripted:{file}", "--max-cost-usd", "1")
    refused = product.run(*words)
    assert refused.code not in {0, 9}
    price = {"input": 1.0, "output": 5.0, "cache_write": 1.25, "cache_read": 0.1}
    product.configure(product.settings, prices={"scripted": price})
    assert product.run(*words).code in {0, 9, refused.code}


def test_limits_of_an_untrusted_project_hold(product: Product) -> None:
    """A limit that a project's file tightens holds for a run."""
    product.configure(limits={"turns": 1})
    model = product.script(says("", "true"), says("done"))
    assert product.run(model).ends_as("limit")
