"""Named lists of attacks, for the benchmark and for comparison with the tables of others.

Each entry is what `attack` takes: names, with `@` and a strength where it is not the nominal one,
joined by `+` where one follows the other. The lists of other benchmarks hold their attacks and
strengths at the ends and the middle of their ranges; the implementations are ours, and differ
where it is said. Knows nothing of marks, keys or networks.
"""

from itertools import permutations

PAPER = (  # the rows of its robustness table, and lyra beside encodec
    "clean", "noise-20", "noise-10", "lowpass", "highpass", "resample", "gain", "quantize", "mp3",
    "smoothing", "echo", "encodec-6", "lyra-6", "griffin-lim", "denoiser",
)  # fmt: skip

RESYNTHESIS = (
    "griffin-lim", "mel", "encodec-6", "dac-16", "lyra-9.2", "lyra-6", "lyra-3.2", "hifigan",
    "bigvgan", "denoiser", "deepfilternet", "rnnoise", "nsnet2",
)  # fmt: skip

HELD_OUT = ("dac-16", "bigvgan", "hifigan", "codec2-3200", "speex-wb2", "gsm")  # not trained on

COMPOUND = (  # the paper's four, and lyra in the place of encodec
    "encodec-6+noise-20",
    "denoiser+resample",
    "encodec-6+denoiser",
    "mp3+griffin-lim",
    "lyra-6+noise-20",
    "lyra-6+denoiser",
)

EVERYDAY = (
    "opus-12", "opus-16", "opus-24", "opus-32", "aac-64", "g722", "vorbis", "speex-wb2",
    "codec2-3200", "g723", "ra-144", "telephone", "packet-loss@5", "packet-loss@10",
    "stretch@0.9", "stretch@1.01", "stretch@1.1", "pitch@-1", "pitch@1",
    "speed@0.9", "speed@0.95", "speed@1.05", "speed@1.1", "crop", "trim", "shift",
    "polarity", "phase-shift", "allpass", "jitter", "clipping", "eq-24",
    "reverb", "background@20", "background@10", "background@5", "pink",
    "compress", "limiter", "expander",
)  # fmt: skip

# Its own compressor, limiter and expander are pydub's, its equaliser stands at 3 to 6.5 dB, its
# impulse responses and backgrounds are recorded ones, and its phase shift is a shift in time.
RAW_BENCH_STRICT = (
    "noise@20", "noise@30", "noise@40", "background@20", "background@35", "reverb",
    "aac-64", "mp3@64", "vorbis", "dac-44@7", "dac-44@8", "dac-44@9", "encodec@12", "encodec@24",
    "compress@-36", "compress@-18", "limiter@-36", "limiter@-18", "expander@-16", "expander@-12",
    "eq-24", "highpass@250", "highpass@500", "lowpass@3500", "lowpass@6000",
    "gain@0.2", "gain@0.5", "gain@1.5", "gain@5",
    "stretch@0.75", "stretch@0.95", "stretch@1.05", "stretch@1.25",
    "quantize@12", "quantize@16", "jitter@0.01", "jitter@0.2", "polarity", "shift", "phase-shift",
)  # fmt: skip

# Its filters are windowed sincs with cutoffs in parts of the rate, here at 16 kHz; at 0.5 of it
# the low-pass does nothing and the high-pass leaves nothing. It quantises between the extremes of
# the clip, we over the full scale: 4 to 64 levels are 2 to 6 bits.
AUDIOMARKBENCH = (
    *(f"stretch@{tempo:g}" for tempo in (0.7, 0.9, 1.1, 1.3, 1.5)),
    *(f"noise@{snr_db}" for snr_db in (40, 30, 20, 10, 5)),
    *(f"background@{snr_db}" for snr_db in (40, 30, 20, 10, 5)),
    *(f"encodec@{kbps:g}" for kbps in (1.5, 3, 6, 12, 24)),
    *(f"mp3@{kbps}" for kbps in (8, 16, 24, 32, 40)),
    *(f"quantize@{bits}" for bits in (2, 3, 4, 5, 6)),
    *(f"highpass@{cutoff_hz}" for cutoff_hz in (1600, 3200, 4800, 6400)),
    *(f"lowpass@{cutoff_hz}" for cutoff_hz in (1600, 3200, 4800, 6400)),
    *(f"smoothing@{window}" for window in (6, 10, 14, 18, 22)),
    *(f"echo-late@{delay_s:g}" for delay_s in (0.1, 0.3, 0.5, 0.7, 0.9)),
)

SCENE = (  # played and recorded again in simulated rooms; under synthetic music
    "room@0.5", "room@1", "room@2", "room@4", "music@20", "music@10", "music@5", "music@0",
)  # fmt: skip

SEALED = (  # what seals are measured under: mild, noisy, re-synthesised
    "clean", "griffin-lim", "denoiser", "mp3", "opus-24", "resample", "lowpass", "highpass",
    "noise-20", "noise-10", "lyra-6", "hifigan",
)  # fmt: skip

SUITES: dict[str, tuple[str, ...]] = {
    "paper": PAPER,
    "resynthesis": RESYNTHESIS,
    "held-out": HELD_OUT,
    "compound": COMPOUND,
    "everyday": EVERYDAY,
    "raw-bench-strict": RAW_BENCH_STRICT,
    "audiomarkbench": AUDIOMARKBENCH,
    "scene": SCENE,
    "sealed": SEALED,
    "pairs": tuple("+".join(pair) for pair in permutations(PAPER[1:], 2)),
}
