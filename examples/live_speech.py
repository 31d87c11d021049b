"""Mark synthetic speech while it is spoken: python examples/live_speech.py marked.wav

`speak` stands for any text-to-speech that gives audio in blocks; here it replays the clip that the
package carries, at the pace of speech (a second argument of 0 does not wait). Each block goes
through a `StreamEmbedder` and out again, a fixed time later, as it would to a loudspeaker or a
call; a `StreamDetector` listens at the other end. A line a second shows what it hears. The key is
made here and thrown away: keep yours in a file (keybound keygen).
"""

import sys
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import soundfile as sf

import keybound
from keybound.demo import SPEECH

BLOCK_S = 0.04
PAYLOAD = 0x5EED
Block = npt.NDArray[np.int16]


def speak(pace: float) -> tuple[int, Iterator[Block]]:
    """Return the rate of some speech and its blocks, each as soon as it would have been spoken."""
    samples, rate = sf.read(SPEECH, dtype="int16")
    size = round(BLOCK_S * rate)

    def blocks() -> Iterator[Block]:
        for start in range(0, len(samples), size):
            time.sleep(BLOCK_S * pace)
            yield samples[start : start + size]

    return rate, blocks()


def main(output: str, pace: float = 1.0) -> None:
    """Mark speech as it comes, play it to a file, and listen to it."""
    key = keybound.Key.generate()
    rate, blocks = speak(pace)
    embedder = keybound.StreamEmbedder(rate, key=key, payload=PAYLOAD)
    detector = keybound.StreamDetector(rate, levels=True)  # levels: what the seal is looked for in
    print(f"each block comes out marked {1000 * embedder.latency_s:.0f} ms after it went in")
    slowest = spoken_s = 0.0
    heard: list[float] = []  # presence of the frames of this second
    with sf.SoundFile(output, "w", rate, 1, "PCM_16") as played:
        for block in blocks:
            begun = time.perf_counter()
            marked = embedder.push(block)
            slowest = max(slowest, time.perf_counter() - begun)
            played.write(marked)
            heard += detector.push(marked).tolist()
            before, spoken_s = spoken_s, spoken_s + len(block) / rate
            if int(spoken_s) > int(before) and heard:
                print(f"{spoken_s:4.1f} s spoken, presence {np.mean(heard):.2f}", flush=True)
                heard.clear()
        rest = embedder.flush()
        played.write(rest)
        detector.push(rest)
    detector.flush()
    print(f"a block of {1000 * BLOCK_S:.0f} ms took {1000 * slowest:.0f} ms at most")
    assert embedder.position is not None  # as it is sealed; keep it to find the seal at once
    verdict = keybound.Watermarker().judge(
        detector.analysis(),
        key=key,
        payload=PAYLOAD,
        search=keybound.SealSearch((embedder.position,)),
    )
    print(f"{verdict.grade}: {verdict.words}")


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
