"""The outer loop: a batch, its meta-gradient, one step; now and then a validation and a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace

import torch
from torch import Tensor

from fewone.episodes import Episodes, generator_for
from fewone.errors import FewoneError
from fewone.learners import MetaLearner, query_loss
from fewone.training.batches import Batch, Batches
from fewone.training.device import accumulate
from fewone.training.run_folder import RunFolder
from fewone.training.settings import Progress, TrainingSettings
from fewone.training.shards import accumulate_in_shards
from fewone.training.state import TrainingState, make_optimizer, outer_rate
from fewone.training.validation import Validator
from fewone.workers import ALONE, Exchange


def train_steps(
    learner: MetaLearner,
    batches: Batches,
    validator: Validator,
    settings: TrainingSettings,
    folder: RunFolder | None = None,
    exchange: Exchange = ALONE,
) -> Generator[Progress, None, None]:
    """Train the learner in place; at the end it has the weights of its best validation (settings.select).

    With an open folder the run is kept there and, if it was begun there before, goes on from its last checkpoint to
    the same bits; a run that is over yields nothing. Closed between two iterations, it keeps its state first.
    exchange: the workers that share the shards of each batch and the validation; the folder is the first one's alone.
    """
    state = TrainingState(learner, make_optimizer(learner, settings), select=settings.select)
    if folder is not None:
        folder.restore(state)
    state.synchronise(exchange)
    ended = state.ending(settings)
    with closing(batches.follow(state.iteration + 1)) as stream:
        while not ended:
            progress = _iterate(state, next(stream), batches, settings, folder, exchange)
            state.measure(exchange)
            ended = state.ending(settings)
            if ended or state.iteration % settings.validate_every == 0:
                progress = replace(progress, validation=state.add(*validator.validate(learner, exchange)))
                ended = state.ending(settings)
            if folder is not None and (ended or folder.is_due()):
                folder.keep(state)
            try:
                yield replace(progress, cpu_seconds=state.cost.cpu_seconds, ended=ended)
            except GeneratorExit:
                if folder is not None and not ended:
                    folder.keep(state)
                raise
    learner.load_state_dict(state.best)


def _iterate(
    state: TrainingState,
    batch: Batch,
    batches: Batches,
    settings: TrainingSettings,
    folder: RunFolder | None,
    exchange: Exchange,
) -> Progress:
    """One step of the outer optimizer; a loss or gradient that is not finite ends the run before it does harm."""
    rate = outer_rate(settings, state.iteration)
    buffers = {name: buffer.clone() for name, buffer in state.learner.named_buffers()}
    state.optimizer.zero_grad(set_to_none=True)
    state.learner.train()
    number = state.iteration + 1
    if settings.shards:
        loss = float(accumulate_in_shards(state.learner, batch, settings.shards, batches.seed, number, exchange))
    else:
        loss = float(_accumulate(state.learner, batch, batches.seed, number))
    norm = _gradient_norm(state.learner, settings.clip)
    if not (math.isfinite(loss) and math.isfinite(norm)):
        for name, buffer in state.learner.named_buffers():
            buffer.copy_(buffers[name])
        if folder is not None:
            folder.keep(state)
        raise FewoneError(_describe_divergence(state, batch, batches, loss, folder))
    for group in state.optimizer.param_groups:
        group["lr"] = rate
    state.optimizer.step()
    state.iteration += 1
    return Progress(state.iteration, loss, norm, rate, state.cost.cpu_seconds)


def _accumulate(learner: MetaLearner, batch: Batch, seed: int, iteration: int) -> Tensor:
    """The meta-gradient; what a layer draws (dropout) is fixed by seed and iteration, the caller's stream untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator_for(seed, "layers", iteration).initial_seed())
        return accumulate(learner, batch)


def _gradient_norm(learner: MetaLearner, clip: float | None) -> float:
    parameters = [parameter for parameter in learner.parameters() if parameter.grad is not None]
    if clip is not None:
        return float(torch.nn.utils.clip_grad_norm_(parameters, clip))
    return float(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))


def _describe_divergence(
    state: TrainingState, batch: Batch, batches: Batches, loss: float, folder: RunFolder | None
) -> str:
    what = "the loss" if not math.isfinite(loss) else "the gradient"
    kept = "" if folder is None else f"; the state after iteration {state.iteration} is kept in {folder.folder}"
    names = _blame(state.learner, batch) or batches.names(batch)
    return (
        f"iteration {state.iteration + 1}: {what} is not a finite number, on {', '.join(names)}{kept};"
        f" look for gaps in the data, or lower the outer or inner rate or set training.clip and begin in a new folder"
    )


def _blame(learner: MetaLearner, batch: Batch) -> list[str]:
    """Which tasks of a batch of episodes, taken alone, give a loss that is not finite."""
    if not isinstance(batch, Episodes):
        return []
    learner.eval()
    found = []
    for number, task in enumerate(batch.tasks):
        one = slice(number, number + 1)
        logits = learner.adapt(batch.support[one])(batch.query.inputs[one])
        if not math.isfinite(float(query_loss(logits.detach(), batch.query[one]))):
            found.append(task.name)
    return found
