"""The spectrogram against torch's own transform, random convolutions, and what comes out of the network table."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from fewone.errors import FewoneError
from fewone.networks import ConvEmbedding, NetworkSettings, build_embedding
from fewone.networks.front_ends import LogSpectrogram
from fewone.networks.random_convolution import RandomConvolution


def test_powers_are_those_of_the_windowed_fourier_transform() -> None:
    inputs = torch.randn(3, 2, 100, generator=torch.Generator().manual_seed(0))
    front_end = LogSpectrogram((2, 100), window=32, hop=10, bands=16)
    weight = torch.hann_window(32, periodic=True)
    frames = inputs.unfold(-1, 32, 10) * weight / weight.square().sum().sqrt()
    power = torch.fft.rfft(frames).abs().square()[..., 1:].transpose(-1, -2)
    expected = (power + 1e-3).log().reshape(3, 32, 7)
    assert front_end.shape == (32, 7)
    torch.testing.assert_close(front_end(inputs), expected, rtol=1e-4, atol=1e-4)


def test_a_tone_lands_in_its_band_and_white_noise_has_unit_power() -> None:
    front_end = LogSpectrogram((1, 4096), window=64, hop=32, bands=8)
    tone = torch.sin(2 * math.pi * 18 / 64 * torch.arange(4096.0))[None, None]
    assert front_end(tone)[0].mean(-1).argmax() == 4  # frequencies 17..20 are the fifth band
    noise = torch.randn(4, 1, 4096, generator=torch.Generator().manual_seed(0))
    assert front_end(noise).exp().mean() == pytest.approx(1.0, abs=0.05)


def test_silence_stays_finite() -> None:
    assert LogSpectrogram((1, 64), 16, 8, 4)(torch.zeros(1, 1, 64)).isfinite().all()


@pytest.mark.parametrize(
    ("shape", "window", "bands"), [((1, 8, 8), 4, 2), ((1, 10), 11, 2), ((1, 10), 8, 5), ((1, 10), 8, 0)]
)
def test_impossible_spectrograms_are_told(shape: tuple[int, ...], window: int, bands: int) -> None:
    with pytest.raises(FewoneError, match=r"allowed|needs"):
        LogSpectrogram(shape, window, 4, bands)


def test_random_convolutions_are_the_same_for_the_same_seed_and_have_nothing_to_learn() -> None:
    inputs = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(0))
    one, two, other = RandomConvolution((3, 64), 20), RandomConvolution((3, 64), 20), RandomConvolution((3, 64), 20, 1)
    assert not list(one.parameters())
    assert one(inputs)[0].shape == (2, 40)
    assert torch.equal(one(inputs)[0], two(inputs)[0])
    assert not torch.allclose(one(inputs)[0], other(inputs)[0])


def test_random_convolution_features_are_share_of_positives_and_maximum() -> None:
    embedding = RandomConvolution((1, 64), 7)
    inputs = torch.randn(1, 1, 64, generator=torch.Generator().manual_seed(0))
    weights = embedding.get_buffer("weights_1")[0, 0]
    kernel = len(embedding.get_buffer("weights_0"))
    padded = torch.nn.functional.pad(inputs[0, 0], (8, 8))
    response = torch.stack([(weights * padded[i : i + 17 : 2]).sum() for i in range(64)]) + embedding.biases[kernel]
    features = embedding(inputs)[0][0]
    torch.testing.assert_close(features[kernel], (response > 0).float().mean())
    torch.testing.assert_close(features[7 + kernel], response.max())


@pytest.mark.parametrize(("shape", "kernels"), [((1, 9), 3), ((3, 128), 20), ((2, 1000), 7), ((1, 20_000), 7)])
@pytest.mark.parametrize("number", [0, 1, 3, 33])
def test_random_convolutions_by_products_are_those_by_convolution_with_their_gradients(
    shape: tuple[int, ...], kernels: int, number: int
) -> None:
    embedding = RandomConvolution(shape, kernels).double()
    inputs = torch.randn(number, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inputs.requires_grad_()
    fast, plain = embedding(inputs)[0], embedding.convolve(inputs)
    torch.testing.assert_close(fast, plain)
    (found,) = torch.autograd.grad(fast.square().sum(), inputs)
    (expected,) = torch.autograd.grad(plain.square().sum(), inputs)
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.parametrize(
    "settings",
    [
        NetworkSettings(filters=(8, 8), norm="running", front_end="log-spectrogram", window=16, hop=8, bands=4),
        NetworkSettings(filters=(8, 8), norm="running", pooling="mean-max"),
        NetworkSettings(architecture="random-convolution", kernels=10),
        NetworkSettings(architecture="identity"),
    ],
)
def test_networks_of_the_table_give_their_width_and_export(settings: NetworkSettings, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    embedding = build_embedding(settings, (2, 128)).eval()
    inputs = torch.randn(5, 2, 128, generator=torch.Generator().manual_seed(0))
    expected = embedding(inputs)[0]
    assert expected.shape == (5, embedding.width)
    torch.onnx.export(embedding, (inputs,), tmp_path / "network.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "network.onnx")
    found = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        NetworkSettings(filters=(8, 8), norm="running", front_end="log-spectrogram", window=16, hop=8, bands=4),
        NetworkSettings(architecture="random-convolution", kernels=10),
    ],
)
def test_networks_build_without_storage(settings: NetworkSettings) -> None:
    """Checkpoints compare shapes on a network on the meta device before they allocate anything."""
    with torch.device("meta"):
        bare = build_embedding(settings, (2, 128)).state_dict()
    real = build_embedding(settings, (2, 128)).state_dict()
    assert {name: tensor.shape for name, tensor in bare.items()} == {n: t.shape for n, t in real.items()}


def test_mean_max_pooling_forgets_the_place() -> None:
    embedding = ConvEmbedding((1, 32), (4,), pooling="mean-max")
    inputs = torch.zeros(1, 1, 32)
    inputs[..., 8:11] = 1.0
    torch.testing.assert_close(embedding(inputs)[0], embedding(inputs.roll(8, -1))[0])


def test_the_wider_network_has_the_published_size() -> None:
    settings = NetworkSettings(filters=(32, 64, 128, 256), norm="running")
    embedding = build_embedding(settings, (3, 32, 32))
    assert embedding.width == 1024
    assert sum(p.numel() for p in embedding.parameters()) == 9 * (3 * 32 + 32 * 64 + 64 * 128 + 128 * 256) + 2 * 480
