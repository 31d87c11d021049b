"""The table of attacks: each name with its function, its nominal parameters and its dial.

Nominal parameters are the paper's where it has the attack (its Table attackcfg). Knows nothing of
marks, keys or networks.
"""

from functools import partial

from keybound.attacks import (
    codecs,
    denoisers,
    dynamics,
    ffmpeg,
    music,
    neural,
    rooms,
    scene,
    signal,
    spectral,
    timing,
)
from keybound.attacks.definition import Attack, define

SNR_DB = ("snr_db", -20, 100)
CUTOFF_HZ = ("cutoff_hz", 1, 96000)
THRESHOLD_DB = ("threshold_db", -60, 0)
TOLD = " unless told"


def _noise(snr_db: float, dial: tuple[str, float, float] | None = None) -> Attack:
    summary = f"white gaussian noise, {snr_db:g} db" + (TOLD if dial else "")
    return define("signal", summary, signal.noise, dial=dial, seeded=True, snr_db=snr_db)


def _opus(bitrate_kbps: float, dial: tuple[str, float, float] | None = None) -> Attack:
    summary = f"opus at about {bitrate_kbps:g} kbps" + (TOLD if dial else "")
    return define("codec", summary, codecs.opus, dial=dial, bitrate_kbps=bitrate_kbps)


def _aac(dial: tuple[str, float, float] | None = None) -> Attack:
    summary = "aac at about 64 kbps" + (TOLD if dial else "")
    needs = partial(ffmpeg.needs, "aac")
    return define("codec", summary, ffmpeg.aac, dial=dial, needs=needs, bitrate_kbps=64.0)


def _lyra(bitrate_kbps: float) -> Attack:
    summary = f"lyra v2 speech codec at {bitrate_kbps:g} kbps"
    needs = neural.lyra_needs
    return define("neural-codec", summary, neural.lyra, needs=needs, bitrate_kbps=bitrate_kbps)


def _encodec(dial: tuple[str, float, float] | None = None) -> Attack:
    summary = "encodec at 24 khz, 6 kbps" + (TOLD if dial else "")
    needs = neural.encodec_folder
    return define("neural-codec", summary, neural.encodec, dial=dial, needs=needs, bitrate_kbps=6.0)


def _dac(model_hz: int, codebooks: int) -> Attack:
    return define(
        "neural-codec",
        f"descript codec at {model_hz / 1000:g} khz, {codebooks} codebooks",
        neural.dac,
        dial=("codebooks", 1, codebooks),
        needs=partial(neural.dac_file, model_hz),
        model_hz=model_hz,
        codebooks=codebooks,
    )


_signal = partial(define, "signal")
_dynamics = partial(define, "dynamics")
_scene = partial(define, "scene")
_timing = partial(define, "timing")
_codec = partial(define, "codec")
_resynthesis = partial(define, "re-synthesis")
_vocoder = partial(define, "vocoder")
_denoiser = partial(define, "denoiser")

ATTACKS: dict[str, Attack] = {
    "clean": define("clean", "nothing at all", signal.clean),
    "noise": _noise(20.0, SNR_DB),
    "noise-20": _noise(20.0),
    "noise-10": _noise(10.0),
    "pink": _signal("pink noise, 20 db", signal.pink, dial=SNR_DB, seeded=True, snr_db=20.0),
    "lowpass": _signal(
        "second-order low-pass, 4 khz", signal.lowpass, dial=CUTOFF_HZ, cutoff_hz=4000.0
    ),
    "highpass": _signal(
        "second-order high-pass, 500 hz", signal.highpass, dial=CUTOFF_HZ, cutoff_hz=500.0
    ),
    "resample": _signal(
        "to 0.8 of the rate and back", signal.resample, dial=("factor", 0.05, 4), factor=0.8
    ),
    "gain": _signal("half the amplitude", signal.gain, dial=("factor", 0, 10), factor=0.5),
    "polarity": _signal("the waveform upside down", signal.polarity),
    "quantize": _signal("8-bit samples", signal.quantize, dial=("bits", 2, 24), bits=8),
    "smoothing": _signal(
        "moving average over 7 samples at 16 khz",
        signal.smoothing,
        dial=("window", 1, 1000),
        window=7,
    ),
    "echo": _signal(
        "one echo after 0.1 s, 0.4 as loud",
        signal.echo,
        dial=("decay", 0, 1),
        delay_s=0.1,
        decay=0.4,
    ),
    "echo-late": _signal(
        "one echo after 0.3 s, 0.4 as loud",
        signal.echo,
        dial=("delay_s", 0, 2),
        delay_s=0.3,
        decay=0.4,
    ),
    "eq-24": _signal(
        "24 bands, each up or down by up to 6 db",
        signal.equalise,
        dial=("range_db", 0, 24),
        seeded=True,
        range_db=6.0,
    ),
    "phase-shift": _signal(
        "all phases turned by 90 degrees",
        signal.phase_shift,
        dial=("phase_deg", -180, 180),
        phase_deg=90.0,
    ),
    "allpass": _signal(
        "phases bent by 8 all-pass sections", signal.allpass, dial=("sections", 1, 64), sections=8
    ),
    "shift": _signal("the clip 10 ms late", signal.shift, dial=("delay_s", -1, 1), delay_s=0.01),
    "jitter": _signal(
        "sampling times off by 0.2 samples",
        signal.jitter,
        dial=("deviation_samples", 0, 10),
        seeded=True,
        deviation_samples=0.2,
    ),
    "clipping": _signal(
        "the loudest 5 % of the samples clipped",
        signal.clipping,
        dial=("clipped_percent", 0, 50),
        clipped_percent=5.0,
    ),
    "compress": _dynamics(
        "4:1 above 24 db below the peak",
        dynamics.compress,
        dial=THRESHOLD_DB,
        threshold_db=-24.0,
        ratio=4.0,
    ),
    "expander": _dynamics(
        "1:2 below 24 db below the peak",
        dynamics.expand,
        dial=THRESHOLD_DB,
        threshold_db=-24.0,
        ratio=2.0,
    ),
    "limiter": _dynamics(
        "nothing above 12 db below the peak",
        dynamics.limit,
        dial=("ceiling_db", -60, 0),
        ceiling_db=-12.0,
    ),
    "reverb": _scene(
        "a simulated room, rt60 0.3 s, as much reverberation as direct sound",
        scene.reverb,
        dial=("rt60_s", 0.01, 5),
        seeded=True,
        rt60_s=0.3,
        direct_db=0.0,
    ),
    "background": _scene(
        "recorded noise, 20 db",
        scene.background,
        dial=SNR_DB,
        seeded=True,
        needs=scene.noise_recordings,
        snr_db=20.0,
    ),
    "room": _scene(
        "simulated: played in a room, rt60 0.4 s, and recorded 1 m away",
        rooms.replay,
        dial=("distance_m", 0.1, 4),
        seeded=True,
        distance_m=1.0,
        rt60_s=0.4,
        drive=1.0,
        noise_db=30.0,
    ),
    "music": _scene("synthetic music, 10 db", music.music, dial=SNR_DB, seeded=True, snr_db=10.0),
    "stretch": _timing(
        "tempo times as fast, pitch kept; length / tempo; 1.1" + TOLD,
        timing.stretch,
        dial=("tempo", 0.5, 2),
        keeps_length=False,
        tempo=1.1,
    ),
    "speed": _timing(
        "played factor times as fast; length / factor; 1.1" + TOLD,
        timing.speed,
        dial=("factor", 0.5, 2),
        keeps_length=False,
        factor=1.1,
    ),
    "pitch": _timing(
        "one semitone up, duration kept", timing.pitch, dial=("semitones", -12, 12), semitones=1.0
    ),
    "crop": _timing(
        "the middle half of the clip",
        timing.crop,
        dial=("keep", 0.01, 1),
        keeps_length=False,
        keep=0.5,
    ),
    "trim": _timing(
        "1.234 s cut off the start, of a short clip its first half",
        timing.trim,
        dial=("trim_s", 0, 3600),
        keeps_length=False,
        trim_s=1.234,
    ),
    "packet-loss": _timing(
        "5 % of packets of 20 ms lost, replaced by zeros",
        timing.packet_loss,
        dial=("loss_percent", 0, 100),
        seeded=True,
        loss_percent=5.0,
    ),
    "mp3": _codec(
        "lame mp3 at 32 kbps", codecs.mp3, dial=("bitrate_kbps", 8, 320), bitrate_kbps=32.0
    ),
    "opus": _opus(16.0, ("bitrate_kbps", *codecs.OPUS_KBPS)),
    "opus-12": _opus(12.0),
    "opus-16": _opus(16.0),
    "opus-24": _opus(24.0),
    "opus-32": _opus(32.0),
    "vorbis": _codec(
        "vorbis at quality 0.6, about 48 kbps",
        codecs.vorbis,
        dial=("quality", 0, 1),
        quality=0.6,
    ),
    "aac": _aac(("bitrate_kbps", 8, 320)),
    "aac-64": _aac(),
    "telephone": _codec("300 to 3400 hz at 8 khz, g.711 mu-law", codecs.telephone),
    "g722": _codec("g.722 at 64 kbps", ffmpeg.g722, needs=partial(ffmpeg.needs, "g722")),
    "speex-wb2": _codec(
        "wideband speex at quality 2, 8 kbps",
        ffmpeg.speex,
        needs=partial(ffmpeg.needs, "libspeex"),
        quality=2,
    ),
    "gsm": _codec(
        "gsm full rate at 8 khz, 13 kbps", ffmpeg.gsm, needs=partial(ffmpeg.needs, "libgsm")
    ),
    "g723": _codec(
        "g.723.1 at 8 khz, 6.3 kbps", ffmpeg.g723, needs=partial(ffmpeg.needs, "g723_1")
    ),
    "ra-144": _codec(
        "realaudio 14.4 at 8 khz, 8 kbps", ffmpeg.ra144, needs=partial(ffmpeg.needs, "real_144")
    ),
    "codec2-3200": _codec(
        "codec 2 at 8 khz, 3.2 kbps",
        ffmpeg.codec2,
        needs=partial(ffmpeg.needs, "libcodec2"),
        bitrate_bps=3200,
    ),
    "griffin-lim": _resynthesis(
        "magnitudes kept, phase found again in 32 iterations",
        spectral.griffin_lim,
        dial=("iterations", 1, 1000),
        seeded=True,
        iterations=32,
    ),
    "mel": _resynthesis(
        "80 mel bands kept, the rest found again",
        spectral.mel,
        dial=("bands", 10, 128),
        seeded=True,
        bands=80,
        iterations=32,
    ),
    "denoiser": _resynthesis("spectral gate above the noise floor", spectral.denoiser),
    "lyra-3.2": _lyra(3.2),
    "lyra-6": _lyra(6.0),
    "lyra-9.2": _lyra(9.2),
    "encodec": _encodec(("bitrate_kbps", 1.5, 24)),
    "encodec-6": _encodec(),
    "dac-16": _dac(16000, 12),
    "dac-44": _dac(44100, 9),
    "hifigan": _vocoder(
        "universal hifi-gan at 22.05 khz", neural.hifigan, needs=neural.hifigan_folder
    ),
    "bigvgan": _vocoder("bigvgan v2 at 24 khz", neural.bigvgan, needs=neural.bigvgan_folder),
    "deepfilternet": _denoiser(
        "deepfilternet 3", denoisers.deepfilternet, needs=denoisers.deepfilternet_files
    ),
    "rnnoise": _denoiser("rnnoise", denoisers.rnnoise, needs=denoisers.rnnoise_file),
    "nsnet2": _denoiser("nsnet2", denoisers.nsnet2, needs=denoisers.nsnet2_file),
}
