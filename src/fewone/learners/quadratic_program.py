"""Small convex quadratic programs in batches, solved by an interior point method and differentiated at the solution.

    minimise  1/2 x'Qx + p'x   subject to   a'x = d,   0 <= x <= u

The support vector machines of `metaoptnet` are of this form. float64 inside, whatever enters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MAXIMUM_ITERATIONS = 60
GAP_TOLERANCE = 1e-16
SHIFT = 1e-13
FORCED_TOLERANCE = 1e-12
SHARE_OF_STEP_TO_BOUNDARY = 0.995


@dataclass(frozen=True)
class QuadraticProgram:
    """B problems of n unknowns: quadratic Q (B, n, n), linear p, equality a, upper u (B, n) and level d (B,).

    Q is symmetric positive semidefinite, u positive, no entry of a is zero, some x in the box meets a'x = d.
    """

    quadratic: Tensor
    linear: Tensor
    equality: Tensor
    level: Tensor
    upper: Tensor

    def gradient(self, x: Tensor) -> Tensor:
        """Of the objective at x (B, n)."""
        return _multiply(self.quadratic, x) + self.linear


@dataclass(frozen=True)
class Solution:
    """The minimiser x (B, n) float64; free (B, n) bool: strictly between the bounds; converged (B,) bool.

    multiplier (B,) of the equality: gradient + a * multiplier is zero where x is free.
    """

    x: Tensor
    free: Tensor
    multiplier: Tensor
    converged: Tensor


@dataclass(frozen=True)
class _Iterate:
    """A point inside the constraints, primal (x, slack = u - x) and dual (of the equality and of both bounds).

    The slack is carried along because near the bound the difference would lose all its digits. Also a direction.
    """

    x: Tensor
    slack: Tensor
    multiplier: Tensor
    lower: Tensor
    upper: Tensor

    def gap(self) -> Tensor:
        """How far the objective can be above its minimum (B,)."""
        return (self.x * self.lower + self.slack * self.upper).sum(-1)


def solve(program: QuadraticProgram) -> Solution:
    """Minimise every problem of the batch; x is differentiable with respect to `quadratic` and `linear`.

    x is unique where Q is positive definite, otherwise the middle of the optimal face. The gradient is exact where
    strict complementarity holds: unknowns at a bound stay there, the free ones follow the KKT system.
    """
    x, free, multiplier, converged = _Minimiser.apply(  # type: ignore[no-untyped-call]
        *(
            entry.to(torch.float64)
            for entry in (program.quadratic, program.linear, program.equality, program.level, program.upper)
        )
    )
    return Solution(x, free, multiplier, converged)


class _Minimiser(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, *entries: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        program = QuadraticProgram(*entries)
        solution = _minimise(program)
        context.save_for_backward(program.quadratic, program.equality, solution.x, solution.free)
        context.mark_non_differentiable(solution.free, solution.multiplier, solution.converged)
        return solution.x, solution.free, solution.multiplier, solution.converged

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Solve the KKT system of the free unknowns for the adjoint d: dL/dp = d, dL/dQ = (dx' + xd') / 2."""
        quadratic, equality, x, free = context.saved_tensors
        both_free = free.unsqueeze(-1) & free.unsqueeze(-2)
        # Without ridge, duplicated points make Q singular. The loss does not depend on how they share their weight,
        # so a shift far below the gradient's accuracy picks the even sharing instead of dividing by zero.
        shift = 1e-12 * quadratic.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
        matrix = torch.where(both_free, quadratic, 0.0) + torch.diag_embed(torch.where(free, shift, 1.0))
        normal = equality * free
        factor, _ = torch.linalg.cholesky_ex(matrix)
        adjoint = -_solve_constrained(factor, normal, gradients[0] * free, torch.zeros_like(normal[:, 0]))[0]
        outer = adjoint.unsqueeze(-1) * x.unsqueeze(-2)
        return 0.5 * (outer + outer.mT), adjoint, None, None, None


def _minimise(program: QuadraticProgram) -> Solution:
    """Mehrotra's predictor and corrector; each problem takes its own steps and is frozen once it has converged."""
    forced, corner = _find_forced(program)
    relaxed = QuadraticProgram(
        program.quadratic,
        program.linear,
        program.equality,
        torch.where(forced, 0.5 * (program.equality * program.upper).sum(-1), program.level),
        program.upper,
    )
    iterate = _start(relaxed)
    first_gap = iterate.gap()
    converged = torch.zeros_like(forced)
    for _ in range(MAXIMUM_ITERATIONS):
        iterate = _choose(converged, iterate, _step(relaxed, iterate))
        size = (iterate.x * _multiply(relaxed.quadratic, iterate.x)).sum(-1) + (relaxed.linear * iterate.x).sum(
            -1
        ).abs()
        converged = converged | (iterate.gap() <= GAP_TOLERANCE * torch.maximum(size, first_gap))
        if bool(converged.all()):
            break
    x = torch.where(forced.unsqueeze(-1), corner, torch.minimum(iterate.x, program.upper))
    free = _find_free(relaxed, iterate) & ~forced.unsqueeze(-1)
    return Solution(x, free, iterate.multiplier, converged | forced)


def _find_forced(program: QuadraticProgram) -> tuple[Tensor, Tensor]:
    """Problems whose equality leaves one point only, a corner of the box: (B,) bool and the corners (B, n).

    They have no interior (the one-class machine at nu = 1), so no interior point method can solve them.
    """
    reach = program.equality * program.upper
    most, least = reach.clamp_min(0).sum(-1), reach.clamp_max(0).sum(-1)
    slack = FORCED_TOLERANCE * (most - least)
    if bool((program.level > most + slack).any()) or bool((program.level < least - slack).any()):
        raise ValueError("a quadratic program has no feasible point: its level is out of the box's reach")
    at_most, at_least = program.level >= most - slack, program.level <= least + slack
    corner = torch.where((program.equality > 0) == at_most.unsqueeze(-1), program.upper, 0.0)
    return at_most | at_least, corner


def _start(program: QuadraticProgram) -> _Iterate:
    """A point inside all constraints, primal and dual, so that the iteration only has to close the gap."""
    reach = program.equality * program.upper
    plus, minus = reach.clamp_min(0).sum(-1), -reach.clamp_max(0).sum(-1)
    flow = 0.5 * (program.level.clamp_min(0) + torch.minimum(plus, minus + program.level))
    tiny = torch.finfo(flow.dtype).tiny
    share_plus, share_minus = flow / plus.clamp_min(tiny), (flow - program.level) / minus.clamp_min(tiny)
    x = program.upper * torch.where(program.equality > 0, share_plus.unsqueeze(-1), share_minus.unsqueeze(-1))
    gradient = program.gradient(x)
    multiplier = -(program.equality * gradient).sum(-1) / program.equality.square().sum(-1)
    residual = gradient + program.equality * multiplier.unsqueeze(-1)
    margin = 0.1 * gradient.abs().amax(-1, keepdim=True)
    margin = torch.where(margin > 0, margin, 1.0)
    lower, upper = residual.clamp_min(0) + margin, (-residual).clamp_min(0) + margin
    return _Iterate(x, program.upper - x, multiplier, lower, upper)


def _step(program: QuadraticProgram, now: _Iterate) -> _Iterate:
    """One predictor and corrector step of every problem."""
    # Where Q is singular the bounds alone do not keep the matrix positive; the residuals stay those of the true Q.
    shift = SHIFT * program.quadratic.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
    matrix = program.quadratic + torch.diag_embed(now.lower / now.x + now.upper / now.slack + shift)
    factor, _ = torch.linalg.cholesky_ex(matrix)
    residual = program.gradient(now.x) + program.equality * now.multiplier.unsqueeze(-1) - now.lower + now.upper
    violation = (program.equality * now.x).sum(-1) - program.level

    def direction(lower_target: Tensor, upper_target: Tensor) -> _Iterate:
        """Newton's direction towards x * lower = lower_target and slack * upper = upper_target."""
        to_lower, to_upper = lower_target - now.x * now.lower, upper_target - now.slack * now.upper
        right = -residual + to_lower / now.x - to_upper / now.slack
        x, multiplier = _solve_constrained(factor, program.equality, right, -violation)
        to_lower, to_upper = (to_lower - now.lower * x) / now.x, (to_upper + now.upper * x) / now.slack
        return _Iterate(x, -x, multiplier, to_lower, to_upper)

    zero = torch.zeros_like(now.x)
    predictor = direction(zero, zero)
    length = _longest_step(now, predictor)
    mean = now.gap() / (2 * now.x.shape[-1])
    reached = _move(now, predictor, length).gap() / (2 * now.x.shape[-1])
    target = (mean * (reached / mean).pow(3)).unsqueeze(-1)
    corrector = direction(target - predictor.x * predictor.lower, target + predictor.x * predictor.upper)
    return _move(now, corrector, SHARE_OF_STEP_TO_BOUNDARY * _longest_step(now, corrector))


def _longest_step(now: _Iterate, direction: _Iterate) -> Tensor:
    """How much of the direction keeps everything positive, at most 1 (B,)."""
    values = torch.cat([now.x, now.slack, now.lower, now.upper], dim=-1)
    changes = torch.cat([direction.x, direction.slack, direction.lower, direction.upper], dim=-1)
    return torch.where(changes < 0, -values / changes, 1.0).amin(-1).clamp_max(1.0)


def _move(now: _Iterate, direction: _Iterate, length: Tensor) -> _Iterate:
    wide = length.unsqueeze(-1)
    return _Iterate(
        now.x + wide * direction.x,
        now.slack + wide * direction.slack,
        now.multiplier + length * direction.multiplier,
        now.lower + wide * direction.lower,
        now.upper + wide * direction.upper,
    )


def _choose(first: Tensor, one: _Iterate, other: _Iterate) -> _Iterate:
    """Per problem: `one` where first (B,) is true, otherwise `other`."""
    wide = first.unsqueeze(-1)
    return _Iterate(
        torch.where(wide, one.x, other.x),
        torch.where(wide, one.slack, other.slack),
        torch.where(first, one.multiplier, other.multiplier),
        torch.where(wide, one.lower, other.lower),
        torch.where(wide, one.upper, other.upper),
    )


def _find_free(program: QuadraticProgram, iterate: _Iterate) -> Tensor:
    """Which unknowns are strictly inside the box (B, n): their distance to each bound outweighs its multiplier.

    At the solution one of the two is zero, so, in units of the largest unknown and force, no tolerance is needed.
    """
    tiny = torch.finfo(iterate.x.dtype).tiny
    length = iterate.x.amax(-1, keepdim=True)
    force = _multiply(program.quadratic, iterate.x).abs() + program.linear.abs()
    force = force.amax(-1, keepdim=True).clamp_min(tiny)
    inside_lower = iterate.x / length > iterate.lower / force
    inside_upper = iterate.slack / length > iterate.upper / force
    return inside_lower & inside_upper


def _solve_constrained(factor: Tensor, equality: Tensor, right: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """x, y with Mx + ay = right and a'x = level, given M's Cholesky factor; where a is all zero, y is zero."""
    both = torch.cholesky_solve(torch.stack([right, equality], dim=-1), factor)
    plain, along = both[..., 0], both[..., 1]
    curvature = (equality * along).sum(-1)
    bound = (equality * plain).sum(-1) - level
    multiplier = torch.where(curvature > 0, bound / torch.where(curvature > 0, curvature, 1.0), 0.0)
    return plain - along * multiplier.unsqueeze(-1), multiplier


def _multiply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
