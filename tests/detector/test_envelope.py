"""Level, spread, steps and spectrum of the normals: inside nothing changes, outside nothing is normal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from fewone.detector.envelope import Envelope, find_distances_left_out, guard
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load
from fewone.onnx_export import export_onnx


def waves(count: int, seed: int = 0, channels: int = 1, length: int = 64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    phases = 6.3 * torch.rand((count, channels, 1), generator=generator)
    noise = 0.2 * torch.randn((count, channels, length), generator=generator)
    return torch.sin(torch.arange(length) / 3 + phases) + noise


def test_inside_the_logits_stay_to_the_bit() -> None:
    logits = torch.tensor([-3.5e6, -1.0, 0.3, float("nan")])
    assert torch.equal(guard(logits[:3], torch.tensor([0.0, 0.2, 0.5]), torch.tensor(0.0)), logits[:3])


def test_outside_the_logit_is_at_least_the_threshold_from_a_distance_of_one_on() -> None:
    logits = torch.tensor([-3.5e6, float("nan"), -float("inf"), 7.0])
    guarded = guard(logits, torch.tensor([1.0, 1.0, 10.0, 1.0]), torch.tensor(2.0))
    assert guarded[:2].tolist() == [2.0, 2.0]
    assert guarded[2] == pytest.approx(2.0 + np.log(19.0))
    assert guarded[3] == 7.0
    assert torch.isfinite(guard(torch.tensor([float("inf")]), torch.tensor([0.0]), torch.tensor(2.0))).all()


def test_hardly_any_further_normal_lies_outside() -> None:
    for count in (1, 2, 5, 10, 50):
        envelopes = Envelope(torch.stack([waves(count, seed) for seed in range(50)]))
        distances = envelopes(waves(100, 99).expand(50, -1, -1, -1))
        assert (distances > 1).double().mean() < 0.005, count


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (lambda wave: wave + 30, "level"),
        (lambda wave: wave * 0 + wave[..., :1], "spread"),
        (lambda wave: wave * 200, "spread"),
        (lambda wave: torch.cat([wave[..., :-1], wave[..., -1:] + 200], -1), "jump"),
        (lambda wave: torch.cat([wave[..., :40] * 0, wave[..., 40:]], -1), "quiet"),
    ],
)
def test_what_is_outside_is_named(fault: Callable[[torch.Tensor], torch.Tensor], kind: str) -> None:
    envelope = Envelope(waves(10)[None])
    faulty = fault(waves(1, 5))[None]
    departures = envelope.compare(faulty)[0, 0].abs()
    assert envelope(faulty) > 1
    named = [name for name, departure in zip(envelope.kinds, departures.tolist(), strict=True) if departure > 1]
    assert kind in named


def test_normals_that_never_move_make_every_move_anomalous() -> None:
    normals = np.full((5, 32), 7.0)
    detector = FewShotDetector().fit(normals)
    assert detector.predict(normals).tolist() == [1] * 5
    assert detector.predict(normals + np.eye(5, 32)).tolist() == [-1] * 5


def test_a_normal_far_from_the_others_is_seen_when_it_is_left_out() -> None:
    normals = torch.cat([waves(9), 1e4 * waves(1, 3)])
    distances = find_distances_left_out(normals, 0.005)
    assert distances[-1] > 1
    assert find_distances_left_out(normals[:1], 0.005).shape == (0,)


def test_the_export_and_what_is_loaded_again_carry_the_envelope(
    trained: Callable[[], FewShotDetector], tmp_path: Path
) -> None:
    normals = waves(10, length=128)[:, 0].numpy()
    detector = trained().fit(normals)
    far = np.concatenate([normals[:1] + 500, normals[:1] * 1e6, normals[:1] * 0, normals[:1]])[:, None]
    assert detector.predict(far).tolist() == [-1, -1, -1, detector.predict(normals[:1])[0]]
    detector.save(tmp_path / "saved")
    np.testing.assert_array_equal(load(tmp_path / "saved").score_samples(far), detector.score_samples(far))
    export_onnx(detector, tmp_path / "out.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    scores, _, labels = session.run(None, {"values": far.astype(np.float32)})
    np.testing.assert_allclose(scores, detector.score_samples(far), rtol=1e-4, atol=1e-4)
    assert labels.tolist() == detector.predict(far).tolist()
    (beyond,) = session.run(["label"], {"values": np.full((1, 1, 128), 1e30, np.float32)})
    assert beyond.tolist() == [-1]


def test_a_lower_rate_of_false_alarms_gives_a_wider_envelope() -> None:
    normals = waves(10)[None]
    assert (Envelope(normals, 0.0005).bound > Envelope(normals, 0.005).bound).all()
