"""Several completions of one prompt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.engine import TorchEngine
from engine.protocol import EngineOutput, EngineRequest, FinishReason
from engine.sampling import SamplingParams
from engine.sequence import Sequence
from tests.engine.completion import Completion, build_tiny_engine, greedy_request, random_prompt, run_together

PROMPT = random_prompt(90, seed=31)


def seeded(n: int, *, seed: int = 5, id: str = "a") -> EngineRequest:
    return EngineRequest(
        id=id, token_ids=PROMPT, max_tokens=12, sampling=SamplingParams(seed=seed, ignore_eos=True), n=n
    )


def run(engine: TorchEngine) -> tuple[dict[int, Completion], list[EngineOutput]]:
    completions: dict[int, Completion] = {}
    outputs: list[EngineOutput] = []
    while engine.has_work():
        for output in engine.step():
            outputs.append(output)
            completions.setdefault(output.choice, Completion()).take(output)
    return completions, outputs


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_choices_differ_and_the_first_is_what_one_alone_would_be(
    llama_folder: Path, prefix_caching: bool
) -> None:
    alone = run_together(build_tiny_engine(llama_folder), [seeded(1)])["a"]
    engine = build_tiny_engine(llama_folder, prefix_caching=prefix_caching)
    engine.add(seeded(5))

    completions, _ = run(engine)

    assert sorted(completions) == [0, 1, 2, 3, 4]
    assert completions[0].token_ids == alone.token_ids
    assert len({tuple(each.token_ids) for each in completions.values()}) == 5
    assert {each.finish_reason for each in completions.values()} == {FinishReason.LENGTH}


def test_same_seed_gives_the_same_choices_whatever_runs_beside(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder)
    engine.add(seeded(3))
    alone, _ = run(engine)
    for index in range(4):
        engine.add(greedy_request(f"mate-{index}", random_prompt(10 + 30 * index, seed=32)))
    engine.add(seeded(3))

    among: dict[int, Completion] = {}
    while engine.has_work():
        for output in engine.step():
            if output.id == "a":
                among.setdefault(output.choice, Completion()).take(output)

    assert among == alone


def test_seed_of_one_choice_is_not_that_of_another_request() -> None:
    seeds = {
        Sequence(seeded(4, seed=seed), arrival=0, choice=choice).sampling.seed
        for seed in range(50)
        for choice in range(4)
    }

    assert len(seeds) == 200


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_choices_share_the_blocks_of_the_prompt(llama_folder: Path, prefix_caching: bool) -> None:
    engine = build_tiny_engine(llama_folder, prefix_caching=prefix_caching)
    engine.add(seeded(4))

    _, outputs = run(engine)

    # Five full blocks are computed once; the rest of the prompt by each.
    figures = engine.figures()
    assert figures.num_prefix_hit_tokens == 3 * 80
    assert figures.num_computed_tokens == 90 + 3 * 10 + 4 * 11
    # They were not found in the cache when the request came, so nothing is said of them.
    assert sum(output.cached_tokens for output in outputs) == 0


def test_without_prefix_caching_requests_do_not_share(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder, prefix_caching=False)

    for id in ("a", "b"):
        engine.add(seeded(2, id=id))
        run(engine)

    assert engine.figures().num_prefix_hit_tokens == 2 * 80


def test_cancelling_ends_every_choice(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder, max_num_seqs=2)
    empty = engine.room()
    engine.add(seeded(5))
    engine.step()

    engine.abort("a")
    outputs = engine.step()

    assert sorted(output.choice for output in outputs if output.finish_reason) == [0, 1, 2, 3, 4]
    assert {output.finish_reason for output in outputs} == {FinishReason.CANCELLED}
    assert not engine.has_work()
    assert engine.room() == empty


def test_choices_end_one_by_one(llama_folder: Path) -> None:
    engine = build_tiny_engine(llama_folder)
    plain = replace(seeded(4), max_tokens=30)
    engine.add(plain)
    texts, _ = run(engine)
    stop = texts[2].token_ids[4]
    engine.add(replace(plain, sampling=replace(plain.sampling, stop_token_ids=(stop,))))

    completions, _ = run(engine)

    for choice, completion in completions.items():
        whole = texts[choice].token_ids
        expected = whole[: whole.index(stop)] if stop in whole else whole
        assert completion.token_ids == expected
    assert completions[2].finish_reason is FinishReason.STOP
