"""The paper's published figures as plain data, so that every table can print them beside ours.

Copied by hand from `paper/keybound.tex`, table by table; nothing here is measured or derived. The
peers' columns are the paper's measurements of WavMark, AudioSeal and Timbre, not ours.
"""

SUITE = (  # family, attack, label: the rows of the robustness table in their order
    ("", "clean", "Clean"),
    ("Signal distortion", "noise-20", "Noise (20 dB)"),
    ("Signal distortion", "noise-10", "Noise (10 dB)"),
    ("Signal distortion", "lowpass", "Lowpass (4 kHz)"),
    ("Signal distortion", "highpass", "Highpass (500 Hz)"),
    ("Signal distortion", "resample", "Resample (0.8)"),
    ("Signal distortion", "gain", "Gain (×0.5)"),
    ("Signal distortion", "quantize", "Quantize (8 bit)"),
    ("Signal distortion", "mp3", "MP3 (32 kbps)"),
    ("Signal distortion", "smoothing", "Smoothing"),
    ("Signal distortion", "echo", "Echo"),
    ("Re-synthesis", "encodec-6", "EnCodec (6 kbps)"),
    ("Re-synthesis", "lyra-6", "Lyra (6 kbps), in EnCodec's place"),
    ("Re-synthesis", "griffin-lim", "Griffin-Lim"),
    ("Re-synthesis", "denoiser", "Denoiser"),
)
ATTACKS = tuple(attack for _, attack, _ in SUITE)
STAND_IN = {"lyra-6": "encodec-6"}  # ours for the paper's, where the paper's weights are absent
PEERS = ("wavmark", "audioseal", "timbre")
NAMES = {  # of methods, as they are printed
    "keybound": "KeyBound",
    "keybound-files": "KeyBound, files",
    "keybound-unsealed": "KeyBound without a seal",
    "keybound-rolling": "KeyBound, rolling code",
    "paper": "the paper's design, our training",
    "wavmark": "WavMark",
    "audioseal": "AudioSeal",
    "timbre": "Timbre",
    "silentcipher": "SilentCipher",
    "perth": "Perth",
    "audiowmark": "audiowmark",
}

# Tables robust, va and fpr. Of WavMark, AudioSeal, Timbre and KeyBound: DA, BA, V_A; of KeyBound
# alone: FPR at the reported DA, and DA matched.
_ATTACKS = """
clean        1.000 1.000 1.000  0.990 0.912 0.813  1.000 1.000 1.000  1.000 0.999 1.000  0.007 1.000
noise-20     0.007 0.501 0.000  0.490 0.639 0.017  0.363 0.909 0.370  1.000 0.999 0.997  0.047 1.000
noise-10     0.000 0.498 0.000  0.287 0.545 0.000  0.003 0.667 0.007  1.000 0.974 0.980  0.803 1.000
lowpass      1.000 1.000 1.000  0.993 0.912 0.810  1.000 0.991 1.000  1.000 0.999 1.000  0.007 1.000
highpass     1.000 1.000 1.000  0.993 0.918 0.807  1.000 1.000 1.000  1.000 0.999 1.000  0.103 1.000
resample     0.947 0.970 0.947  0.967 0.898 0.727  1.000 1.000 1.000  1.000 0.999 1.000  0.013 1.000
gain         0.993 0.996 0.993  0.947 0.908 0.760  1.000 1.000 1.000  1.000 0.999 1.000  0.000 1.000
quantize     0.747 0.864 0.743  0.937 0.852 0.533  0.977 0.999 0.977  1.000 0.999 1.000  0.007 1.000
mp3          0.723 0.849 0.710  0.907 0.861 0.593  1.000 1.000 1.000  1.000 0.999 1.000  0.007 1.000
smoothing    0.940 0.969 0.940  0.970 0.907 0.767  1.000 0.988 1.000  1.000 0.999 1.000  0.003 1.000
echo         0.677 0.821 0.653  0.977 0.870 0.637  1.000 1.000 1.000  1.000 0.994 0.993  0.050 1.000
encodec-6    0.000 0.498 0.000  0.850 0.568 0.010  0.013 0.562 0.003  1.000 0.982 0.990  0.030 1.000
griffin-lim  0.983 0.988 0.987  0.080 0.524 0.000  1.000 1.000 1.000  1.000 0.702 0.200  0.053 1.000
denoiser     0.000 0.498 0.000  0.173 0.545 0.000  0.007 0.712 0.010  1.000 0.983 0.973  0.127 1.000
"""
_FIGURES = {
    words[0]: [float(word) for word in words[1:]]
    for words in (line.split() for line in _ATTACKS.strip().splitlines())
}


def _of(attack: str, start: int, count: int) -> dict[str, tuple[float, ...]]:
    figures = _FIGURES[attack]
    return {m: tuple(figures[3 * n + start :][:count]) for n, m in enumerate((*PEERS, "keybound"))}


ROBUSTNESS = {attack: _of(attack, 0, 2) for attack in _FIGURES}  # method -> (DA, BA)
ATTRIBUTION = {attack: _of(attack, 2, 1) for attack in _FIGURES}  # method -> (V_A,)
FALSE_POSITIVES = {  # (DA reported, FPR, DA matched), KeyBound alone
    attack: (figures[9], *figures[12:]) for attack, figures in _FIGURES.items()
}

SECURITY: dict[str, tuple[float | None, float]] = {  # Table security: (no-key BA, transplant V_A)
    "wavmark": (None, 0.000),  # None: public
    "audioseal": (None, 0.587),
    "timbre": (None, 0.227),
    "keybound": (0.512, 0.043),
}

QUALITY = {  # Table quality: (PESQ, STOI, SNR in dB); WavMark on clips of 1.1 s
    "wavmark": (4.18, 0.993, 37.4),
    "audioseal": (3.44, 0.968, 18.2),
    "timbre": (3.55, 0.715, 27.7),
    "keybound": (3.03, 0.981, 24.6),
}

CONFIGURATION = {  # Table attackcfg: attack -> parameter or model, strength
    "noise-20": "additive Gaussian, SNR 20 dB",
    "noise-10": "additive Gaussian, SNR 10 dB",
    "lowpass": "biquad low-pass, cutoff 4 kHz",
    "highpass": "biquad high-pass, cutoff 500 Hz",
    "resample": "rational resample, factor 0.8",
    "gain": "amplitude scale, ×0.5",
    "quantize": "bit-depth reduction, 8 bit",
    "mp3": "LAME codec, 32 kbps",
    "smoothing": "moving average, window 7",
    "echo": "delay and decay, 0.1 s, 0.4",
    "encodec-6": "encodec_24khz, 6 kbps",
    "griffin-lim": "STFT 1024/256, magnitude only",
    "denoiser": "spectral gating, STFT 1024/256",
    "dac-16": "official 16 kHz checkpoint, all 12 quantizers",
    "bigvgan": "bigvgan_v2_24khz_100band_256x",
}

HELD_OUT = {  # Table heldout: (DA, BA, PESQ, STOI, SI-SNR aligned in dB)
    "dac-16": (0.92, 0.70, 2.99, 0.96, 10.5),
    "bigvgan": (1.00, 0.50, 2.88, 0.98, -2.7),
}
HELD_OUT_RAW_DB = {"dac-16": -15.0, "bigvgan": -2.9}  # SI-SNR before alignment, from the text

REMOVER = {  # Table remover, the U-net: steps -> (DA, BA, PESQ, STOI, SNR in dB)
    1000: (1.00, 1.00, 3.02, 0.98, 24.6),
    4000: (0.17, 0.66, 4.18, 0.99, 32.8),
    10000: (0.04, 0.58, 4.37, 0.99, 35.4),
    20000: (0.02, 0.55, 4.42, 0.99, 36.9),
}

COMPOUND = {  # Table compound: chain -> (DA of KeyBound, DA of AudioSeal)
    "encodec-6+noise-20": (1.00, 0.41),
    "denoiser+resample": (1.00, 0.25),
    "encodec-6+denoiser": (1.00, 0.22),
    "mp3+griffin-lim": (1.00, 0.05),
}

HOST_BINDING = {"keybound": (0.53, 0.53), "ablation/no-anchor": (1.00, 1.00)}  # (corr., cosine)

WRONG_KEY = {"right": "1.00", "zero": "0.51", "wrong": "0.50 ± 0.04"}  # Table nokey

BETA = {8: 1.4e-1, 16: 2.1e-3, 24: 1.8e-5, 32: 1.2e-7}  # Table beta, rho = 2

INTERVALS = {  # Table ci: (measure, method, what) -> (value, low, high)
    ("DA", "keybound", "denoiser"): (1.000, 0.988, 1.000),
    ("DA", "keybound", "encodec-6"): (1.000, 0.988, 1.000),
    ("DA", "audioseal", "encodec-6"): (0.850, 0.804, 0.888),
    ("transplant V_A", "keybound", "residual"): (0.043, 0.023, 0.073),
    ("transplant V_A", "audioseal", "residual"): (0.587, 0.529, 0.643),
    ("BA", "keybound", "denoiser"): (0.985, 0.980, 0.989),
    ("BA", "keybound", "encodec-6"): (0.983, 0.979, 0.986),
    ("no-key BA", "keybound", "zero mask"): (0.499, 0.485, 0.513),
    ("BA", "audioseal", "denoiser"): (0.553, 0.538, 0.568),
}

ABLATION = {  # Table ablation: (transplant V_A, EnCodec BA, DA, denoiser BA, DA, PESQ)
    "baseline": (0.04, 0.98, 1.00, 0.98, 1.00, 3.03),
    "no-anchor": (1.00, 0.52, 1.00, 0.97, 1.00, 3.64),
    "no-codec": (0.05, 0.54, 0.92, 0.98, 1.00, 3.45),
}

PAYLOAD_LENGTH = {8: 1.00, 16: 1.00, 32: 0.72, 64: 0.64}  # BA clean and denoised, from the text

OPERATING_POINT = (0.998, 0.792)  # denoiser BA at the loudest and the quietest budget, from Fig. 2a
