"""The training batches of a run, by number: batch n is fixed by the seed and n alone, whatever happened before."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch

from fewone.episodes import ClassBatch, Episodes, Task, generator_for
from fewone.sampling import ClassSampler, EpisodeSampler

Batch = Episodes | ClassBatch
Transform = Callable[[Batch, torch.Generator], Batch]
"""What happens to a batch after it was drawn (augmentation), with the batch's own generator."""


@dataclass(frozen=True)
class Batches:
    """Batch n of the training tasks. smallest_k: the support size is drawn anew from it to the sampler's own."""

    tasks: Sequence[Task]
    sampler: EpisodeSampler | ClassSampler
    meta_batch: int
    seed: int
    smallest_k: int | None = None
    transform: Transform | None = None

    def draw(self, number: int) -> Batch:
        generator = generator_for(self.seed, "train", number)
        batch: Batch
        if isinstance(self.sampler, ClassSampler):
            batch = self.sampler.draw(self.tasks, generator)
        else:
            batch = self._sized(self.sampler, generator).draw(self.tasks, self.meta_batch, generator)
        return batch if self.transform is None else self.transform(batch, generator)

    def _sized(self, sampler: EpisodeSampler, generator: torch.Generator) -> EpisodeSampler:
        if self.smallest_k is None or self.smallest_k >= sampler.support_size:
            return sampler
        size = int(torch.randint(self.smallest_k, sampler.support_size + 1, (1,), generator=generator))
        return replace(sampler, support_size=size)

    def follow(self, number: int) -> Generator[Batch, None, None]:
        """Batch `number` and those after it, without end; the next one is drawn while one is used."""
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as worker:
            pending = worker.submit(self.draw, number)
            while True:
                batch = pending.result()
                number += 1
                pending = worker.submit(self.draw, number)
                yield batch

    def names(self, batch: Batch) -> list[str]:
        """The tasks of a batch, for messages."""
        if isinstance(batch, Episodes):
            return [task.name for task in batch.tasks]
        return [self.tasks[number].name for number in batch.class_index.tolist() if number < len(self.tasks)]
