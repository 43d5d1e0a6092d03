"""Users under targets of latency: by the bound and by what is expected, each by itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

from llmcalc import load
from llmcalc.calc.capacity import capacity
from llmcalc.calc.expected import step_expected
from llmcalc.calc.latency import latency
from llmcalc.calc.room import Asked
from llmcalc.calc.users import Users, users
from llmcalc.calc.weight_shards import Ranks
from llmcalc.hardware.catalogue import describe

Run = Callable[..., "CompletedProcess[str]"]
LLAMA = load("llama-3-8b").architecture


def served(name: str, gpu: str, tokens: int, ranks: Ranks = Ranks(), batch: int = 1, **targets: float) -> Users:  # noqa: B008
    device = describe(gpu)
    room = capacity(load(name).architecture, device, Asked(tokens, batch, ranks=ranks))
    return users(room, device, targets.get("itl"), targets.get("ttft"))


def test_by_the_bound() -> None:
    device = describe("l4")
    free = served("llama-3-8b", "l4", 2048)
    assert (free.bound.limited_by, free.bound.most) == ("memory", free.room.max_sequences)
    slow = served("llama-3-8b", "l4", 2048, itl=0.06)
    assert (slow.bound.limited_by, slow.bound.basis) == ("itl", "at_least")
    most = slow.bound.most
    assert most is not None
    assert latency(LLAMA, device, 2048, most).decode.seconds_at_least <= 0.06
    assert latency(LLAMA, device, 2048, most + 1).decode.seconds_at_least > 0.06
    assert slow.bound.itl_seconds is not None
    assert slow.bound.tokens_per_second_per_device == most / slow.bound.itl_seconds
    assert served("llama-3-8b", "l4", 2048, itl=0.06, ttft=0.5).bound.limited_by == "ttft"
    assert served("llama-3-8b", "l4", 2048, itl=1e-6).bound.most == 0
    assert (slow.spoken, slow.expected, slow.silent[:14]) == (0, None, "no calibration")


@pytest.mark.parametrize(
    ("name", "gpu", "tokens", "ranks", "itl"),
    [
        ("llama-3-70b", "h200-sxm-141gb", 2048, Ranks(4), 0.03),
        ("llama-2-7b", "a100-sxm4-80gb", 64, Ranks(), 0.012),
        ("llama-2-7b", "a100-sxm4-80gb", 1024, Ranks(), 0.02),
        ("deepseek-v3", "b200-180gb", 2048, Ranks(8), 0.03),
    ],
)
def test_the_two_are_never_mixed(name: str, gpu: str, tokens: int, ranks: Ranks, itl: float) -> None:
    """Against steps of exactly so many sequences, and of one more."""
    found = served(name, gpu, tokens, ranks, itl=itl)
    device, likely = describe(gpu), found.expected
    assert likely is not None
    assert likely.most is not None

    def seconds(number: int) -> tuple[float, float]:
        step = latency(load(name).architecture, device, tokens, number, ranks=ranks)
        seen = step_expected(step, step.decode)
        assert seen is not None
        return step.decode.seconds_at_least, seen.likely

    assert seconds(likely.most)[1] <= itl < seconds(likely.most + 1)[1]
    assert likely.itl_seconds == seconds(likely.most)[1]
    limit = found.limits["itl"]
    assert limit is not None
    assert found.itl(limit) <= itl < found.itl(limit + 1)
    assert found.bound.most is not None
    assert likely.most <= found.bound.most
    assert all(found.likely(number) is not None for number in range(1, likely.most + 2))


def test_a_calibration_that_stops_speaking_is_said() -> None:
    found = served("llama-2-7b", "a100-sxm4-80gb", 64, itl=0.1)
    assert found.spoken == 250
    assert found.likely(250) is not None
    assert found.likely(251) is None
    assert found.expected is None
    assert "up to 250 sequences" in found.silent
    assert found.bound.most == found.room.max_sequences == 2158
    both = served("llama-2-7b", "a100-sxm4-80gb", 1024, itl=0.02, ttft=0.5)
    assert (both.expected, both.bound.limited_by) == (None, "ttft")
    assert "first tokens" in both.silent


def test_stages_of_a_pipeline_may_work_on_different_sequences() -> None:
    """No schedule is faster: a token passes all stages, and a stage serves all sequences between two of its tokens."""
    one, two = (served("llama-3-70b", "h200-sxm-141gb", 2048, Ranks(2, pp)) for pp in (1, 2))
    assert two.itl(1) == two.found.at(two.found.sizes).seconds_at_least
    assert two.itl(500) < two.found.at(two._of(500)).seconds_at_least
    assert two.itl(500) == two._step(500).moved_bytes / describe("h200-sxm-141gb").bandwidth()
    assert two.ttft(4) < one.ttft(4)
    assert two.ttft(1) == two.found.prefill_seconds_at_least


def test_targets_of_the_sequences_asked_for() -> None:
    def met(batch: int, itl: float) -> tuple[bool | None, str | None]:
        (one,) = served("llama-3-70b", "h200-sxm-141gb", 2048, Ranks(4), batch, itl=itl).met()
        return one.met, one.basis

    assert met(520, 0.03) == (True, "expected")
    assert met(530, 0.03) == (False, "expected")
    assert met(660, 0.03) == (False, "at_least")
    (one,) = served("llama-3-8b", "l4", 2048, itl=0.06).met()
    assert (one.met, one.basis) == (None, None)


def results(done: CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)["results"]
    return found


def test_check_and_text(run: Run) -> None:
    words = ("capacity", "llama-3-70b", "--gpu", "h200-sxm-141gb", "--tp", "4", "--tokens", "2048", "--check")
    done = run(*words, "--batch", "520", "--max-itl", "0.03")
    assert (done.returncode, "expected to be met" in done.stdout) == (0, True)
    assert "expected: 522 users at once" in done.stdout
    assert "at most 651 users at once" in done.stdout
    done = run(*words, "--batch", "530", "--max-itl", "0.03")
    assert (done.returncode, "expected to be missed" in done.stdout, "it fits" in done.stdout) == (3, True, True)
    done = run(*words, "--batch", "660", "--max-itl", "0.03", "--json")
    assert done.returncode == 3
    found = results(done)
    assert found["fits"] is True
    assert (found["max_users"], found["max_users_expected"], found["basis"]) == (651, 522, "at_least")
    assert (found["targets"][0]["met"], found["targets"][0]["basis"]) == (False, "at_least")
    done = run("capacity", "llama-3-8b", "--gpu", "l4", "--max-ttft", "0.01", "--check")
    assert (done.returncode, "surely missed" in done.stdout) == (3, True)
    done = run("capacity", "llama-3-8b", "--gpu", "l4", "--max-itl", "0.06", "--check")
    assert (done.returncode, "not ruled out" in done.stdout) == (0, True)
