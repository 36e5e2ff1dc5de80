"""The solver against scikit-learn's machines, against closed forms, and its gradient against finite differences."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, OneClassSVM

from fewone.learners.quadratic_program import QuadraticProgram, Solution, solve

SIZES = (2, 2, 3, 5, 10, 20)


@dataclass(frozen=True)
class Case:
    """One random machine: kernel (n, n), signs (n,), the share of outliers and the binary machine's box."""

    kernel: np.ndarray
    signs: np.ndarray
    nu: float
    penalty: float

    def one_class(self) -> QuadraticProgram:
        n = len(self.signs)
        bound = torch.full((1, n), 1 / (self.nu * n), dtype=torch.float64)
        kernel = torch.from_numpy(self.kernel)[None]
        return QuadraticProgram(kernel, torch.zeros(1, n), torch.ones(1, n), torch.ones(1), bound)

    def binary(self) -> QuadraticProgram:
        n = len(self.signs)
        signs = torch.from_numpy(self.signs)[None]
        quadratic = torch.from_numpy(self.kernel * np.outer(self.signs, self.signs))[None]
        bound = torch.full((1, n), self.penalty, dtype=torch.float64)
        return QuadraticProgram(quadratic, -torch.ones(1, n), signs, torch.zeros(1), bound)


def draw_cases(ridge: float, count: int = 100) -> list[Case]:
    """Random supports, a third of them with a duplicated point.

    libsvm rounds kernels to float32, so points lie on a grid of eighths: then their inner products are exact there.
    """
    random = np.random.default_rng(int(ridge))
    cases = []
    for number in range(count):
        n = SIZES[number % len(SIZES)]
        points = np.round(random.normal(size=(n, random.integers(1, 12))) * 8) / 8
        if number % 3 == 0:
            points[1] = points[0]
        signs = np.where(random.random(n) < 0.5, 1.0, -1.0)
        signs[0], signs[-1] = 1.0, -1.0
        kernel = points @ points.T + ridge * np.eye(n)
        nu = (0.1, 0.3, 0.5, 0.9, 0.99)[number % 5]
        cases.append(Case(kernel, signs, nu, penalty=10 ** random.uniform(-3, 1)))
    return cases


def judge_one_class(case: Case) -> tuple[np.ndarray, bool]:
    """scikit-learn's weights, in our scale (they sum to 1), and whether it converged."""
    machine = OneClassSVM(kernel="precomputed", nu=case.nu, tol=1e-10, max_iter=20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(case.kernel)
    weights = np.zeros(len(case.signs))
    weights[machine.support_] = machine.dual_coef_[0] / (case.nu * len(case.signs))
    return weights, machine.fit_status_ == 0


def judge_binary(case: Case) -> tuple[np.ndarray, bool]:
    machine = SVC(kernel="precomputed", C=case.penalty, tol=1e-10, max_iter=20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(case.kernel, case.signs)
    weights = np.zeros(len(case.signs))
    weights[machine.support_] = np.abs(machine.dual_coef_[0])
    return weights, machine.fit_status_ == 0


def objective(program: QuadraticProgram, x: np.ndarray) -> float:
    return float(0.5 * x @ program.quadratic[0].numpy() @ x + program.linear[0].numpy() @ x)


def assert_optimal(program: QuadraticProgram, solution: Solution) -> None:
    """Feasible, and stationary up to multipliers of the right sign."""
    x = solution.x
    assert solution.converged.all()
    assert ((x >= 0) & (x <= program.upper)).all()
    assert torch.allclose((program.equality * x).sum(-1), program.level.double(), atol=1e-12)
    force = program.gradient(x) + program.equality * solution.multiplier.unsqueeze(-1)
    scale = 1e-7 * (1 + program.gradient(x).abs().amax())
    assert (force[solution.free].abs() <= scale).all()
    at_bound, half = ~solution.free, 0.5 * program.upper
    assert (force[at_bound & (x < half)] >= -scale).all()
    assert (force[at_bound & (x > half)] <= scale).all()


@pytest.mark.parametrize("kind", ["one-class", "binary"])
def test_weights_are_those_of_scikit_learn_where_the_dual_is_strictly_convex(kind: str) -> None:
    compared = 0
    for case in draw_cases(ridge=1.0):
        program = case.one_class() if kind == "one-class" else case.binary()
        weights, converged = judge_one_class(case) if kind == "one-class" else judge_binary(case)
        solution = solve(program)
        assert_optimal(program, solution)
        if converged:
            compared += 1
            assert np.abs(solution.x[0].numpy() - weights).max() < 1e-5
    assert compared >= 95


@pytest.mark.parametrize("kind", ["one-class", "binary"])
def test_objective_and_decision_values_are_those_of_scikit_learn_where_the_kernel_is_singular(kind: str) -> None:
    compared = 0
    for case in draw_cases(ridge=0.0):
        program = case.one_class() if kind == "one-class" else case.binary()
        weights, converged = judge_one_class(case) if kind == "one-class" else judge_binary(case)
        solution = solve(program)
        assert_optimal(program, solution)
        x = solution.x[0].numpy()
        assert objective(program, x) < objective(program, weights) + 1e-6
        if converged:
            compared += 1
            signs = program.equality[0].numpy()
            assert abs(objective(program, x) - objective(program, weights)) < 1e-6
            assert np.abs(case.kernel @ (signs * (x - weights))).max() < 1e-6
    assert compared >= 70


def test_all_weights_at_their_bound_where_the_box_leaves_nothing_else() -> None:
    """nu = 1 has one feasible point only (scikit-learn refuses it): every weight 1/n, and no gradient."""
    kernel = torch.randn(1, 5, 5, dtype=torch.float64)
    kernel = (kernel @ kernel.mT).requires_grad_()
    ones = torch.ones(1, 5, dtype=torch.float64)
    solution = solve(QuadraticProgram(kernel, 0 * ones, ones, ones[:, 0], ones / 5))
    assert torch.equal(solution.x, ones / 5)
    assert not solution.free.any()
    solution.x.square().sum().backward()
    assert torch.equal(kernel.grad, torch.zeros_like(kernel))


def test_all_weights_of_a_balanced_binary_machine_reach_a_small_box() -> None:
    random = np.random.default_rng(3)
    points = random.normal(size=(6, 4))
    case = Case(points @ points.T + np.eye(6), np.array([1.0, 1, 1, -1, -1, -1]), nu=0.5, penalty=1e-3)
    solution = solve(case.binary())
    assert torch.allclose(solution.x, torch.full((1, 6), 1e-3, dtype=torch.float64), atol=1e-10)
    assert not solution.free.any()


def test_a_problem_without_feasible_point_is_refused() -> None:
    program = draw_cases(1.0, 1)[0].one_class()
    with pytest.raises(ValueError, match="no feasible point"):
        solve(replace(program, level=torch.tensor([100.0])))


def test_a_problem_is_solved_alike_alone_and_in_any_company() -> None:
    """Hard and easy problems, of very different scale, share a batch."""
    cases = [case for case in draw_cases(1.0, 60) if len(case.signs) == 5]
    programs = [
        replace(case.one_class(), quadratic=case.one_class().quadratic * 10.0**n) for n, case in enumerate(cases)
    ]
    together = solve(
        QuadraticProgram(
            *(
                torch.cat([getattr(program, name) for program in programs])
                for name in ("quadratic", "linear", "equality", "level", "upper")
            )
        )
    )
    for number, program in enumerate(programs):
        alone = solve(program)
        assert torch.allclose(together.x[number], alone.x[0], rtol=0, atol=1e-12)
        assert torch.equal(together.free[number], alone.free[0])


def test_float32_problems_are_solved_in_float64() -> None:
    program = draw_cases(1.0, 4)[3].one_class()
    single = replace(program, quadratic=program.quadratic.float())
    assert solve(single).x.dtype == torch.float64


def is_strict(program: QuadraticProgram, solution: Solution, margin: float = 1e-2) -> bool:
    """Strict complementarity with some room: weights well inside, or pressed firmly onto their bound."""
    force = program.gradient(solution.x) + program.equality * solution.multiplier.unsqueeze(-1)
    inside = torch.minimum(solution.x, program.upper - solution.x) / program.upper
    return bool(torch.where(solution.free, inside, force.abs()).min() > margin)


@pytest.mark.parametrize("kind", ["one-class", "binary"])
def test_gradient_agrees_with_finite_differences_where_complementarity_is_strict(kind: str) -> None:
    generator = torch.Generator().manual_seed(5)
    compared = mixed = 0
    for case in draw_cases(ridge=1.0, count=48):
        program = case.one_class() if kind == "one-class" else case.binary()
        solution = solve(program)
        if not is_strict(program, solution):
            continue
        n = len(case.signs)
        direction = torch.randn(1, n, n, generator=generator, dtype=torch.float64)
        direction = direction + direction.mT
        shift = torch.randn(1, n, generator=generator, dtype=torch.float64)
        weights = torch.randn(1, n, generator=generator, dtype=torch.float64)
        quadratic, linear = program.quadratic.clone().requires_grad_(), program.linear.double().requires_grad_()
        (solve(replace(program, quadratic=quadratic, linear=linear)).x * weights).sum().backward()
        slope = float((quadratic.grad * direction).sum() + (linear.grad * shift).sum())
        step = 1e-5
        ends = [
            solve(
                replace(
                    program,
                    quadratic=program.quadratic + sign * step * direction,
                    linear=program.linear + sign * step * shift,
                )
            ).x
            for sign in (1, -1)
        ]
        measured = float(((ends[0] - ends[1]) * weights).sum()) / (2 * step)
        assert abs(slope - measured) < 1e-4 * max(abs(measured), 1e-2)
        compared += 1
        mixed += bool(solution.free.any() and not solution.free.all())
    assert compared >= 20
    assert mixed >= 4


def test_gradient_of_a_decision_value_is_right_where_points_are_duplicated() -> None:
    """Without ridge the weights of two equal points are not unique, but what they decide together is."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(1, 4, 6, generator=generator, dtype=torch.float64) + 2
    twice = torch.cat([points, points[:, :1]], dim=1)
    query = torch.randn(1, 6, 1, generator=generator, dtype=torch.float64)

    def decide(points: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(points.shape[:2], dtype=torch.float64)
        weights = solve(QuadraticProgram(points @ points.mT, 0 * ones, ones, ones[:, 0], 2 * ones)).x
        return (weights.unsqueeze(1) @ points @ query).sum()

    single, double = points.clone().requires_grad_(), twice.clone().requires_grad_()
    decide(single).backward()
    decide(double).backward()
    folded = double.grad[:, :4].clone()
    folded[:, 0] += double.grad[:, 4]
    assert torch.allclose(folded, single.grad, atol=1e-6)
