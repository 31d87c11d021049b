"""Mark the speech of a Pipecat bot: pip install pipecat-ai, and put a `MarkSpeech` behind its TTS.

    Pipeline([..., tts, MarkSpeech(key=key, payload=0x5EED), transport.output(), ...])

python examples/pipecat_processor.py marked.wav runs a pipeline on the clip that the package
carries. The key is made there and thrown away: keep yours in a file (keybound keygen).

Each utterance, from TTSStartedFrame to TTSStoppedFrame, is a stream of its own. So its last samples
go out when it ends, not with the next one; its mark is read back by itself; and an interruption,
which drops what is not played, ends one stream and no other. Nothing of an utterance is passed on
before a second of it is marked: a shorter one cannot be marked, is dropped, and an ErrorFrame says
so upstream, unless `unmarked_ok`. Audio that is no speech of a TTS passes as it is.
"""

import asyncio
import sys
from typing import Any

import numpy as np
import soundfile as sf
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InterruptionFrame,
    StopFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

import keybound
from keybound.demo import SPEECH

LEAST_S = 1.0  # of speech that is marked: below it a mark is easily lost
PAYLOAD = 0x5EED


class Utterance:
    """Speech that is marked as it comes, and whose mark is read back from what went out."""

    def __init__(self, first: TTSAudioRawFrame, key: keybound.Key, payload: int) -> None:
        self.like, self._key, self._payload = first, key, payload
        rate, channels = first.sample_rate, first.num_channels
        own = {"key": key, "payload": payload}
        self._embedder = keybound.StreamEmbedder(rate, **own, channels=channels)
        self._detector = keybound.StreamDetector(rate, channels=channels)
        self._held = [np.zeros((0, first.num_channels), np.int16)]  # until there is a second of it
        self.host: list[bytes] = []  # the same as it came
        self.begun = False

    def push(self, audio: bytes) -> bytes:
        """Return what may go out by now."""
        self._taken(self._embedder.push(self._samples(audio)))
        if not self.begun:
            self.host.append(audio)
            if sum(map(len, self._held)) < LEAST_S * self.like.sample_rate:
                return b""
            self.begun, self.host = True, []
        return self._given()

    def end(self) -> bytes:
        """Return the rest; nothing where all of it is too short."""
        self._taken(self._embedder.flush())
        if sum(map(len, self._held)) >= LEAST_S * self.like.sample_rate:
            self.begun = True
        return self._given() if self.begun else b""

    def is_read_back(self) -> bool:
        """Return whether the mark can be read from what went out."""
        self._detector.flush()
        own = {"key": self._key, "payload": self._payload}
        return keybound.Watermarker().attribute(self._detector.detection(), **own).rule_holds

    def _samples(self, audio: bytes) -> Any:
        return np.frombuffer(audio, "<i2").reshape(-1, self.like.num_channels)

    def _taken(self, marked: Any) -> None:
        self._held.append(marked.reshape(-1, self.like.num_channels))

    def _given(self) -> bytes:
        given = np.concatenate(self._held)
        self._held = [given[:0]]
        self._detector.push(given)
        return given.astype("<i2").tobytes()


class MarkSpeech(FrameProcessor):
    """Marks the audio of a TTS on its way to the transport."""

    def __init__(self, *, key: keybound.Key, payload: int, unmarked_ok: bool = False) -> None:
        super().__init__()
        self._key, self._payload, self._unmarked_ok = key, payload, unmarked_ok
        self._utterance: Utterance | None = None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Mark speech; pass on every other frame."""
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame) and direction == FrameDirection.DOWNSTREAM:
            await self._mark(frame)
            return
        if isinstance(frame, InterruptionFrame | CancelFrame):
            self._utterance = None  # what was held back is not played
        elif isinstance(frame, TTSStartedFrame | TTSStoppedFrame | EndFrame | StopFrame):
            await self._end()
        await self.push_frame(frame, direction)

    async def _mark(self, frame: TTSAudioRawFrame) -> None:
        try:
            own = self._utterance
            if own is None or _form(own.like) != _form(frame):
                await self._end()
                own = self._utterance = Utterance(frame, self._key, self._payload)
            # In a thread: the pipeline goes on meanwhile. Frames of one utterance wait in order.
            await self._give(own, await asyncio.to_thread(own.push, frame.audio))
        except (keybound.KeyBoundError, ValueError) as error:
            await self._refuse(f"speech cannot be marked: {error}", frame)

    async def _end(self) -> None:
        """End the utterance, if there is one."""
        own, self._utterance = self._utterance, None
        if own is None:
            return
        await self._give(own, await asyncio.to_thread(own.end))
        if not own.begun:
            what = f"speech of less than {LEAST_S:g} s cannot be marked"
            await self._refuse(what, _like(own.like, b"".join(own.host)))
        elif not await asyncio.to_thread(own.is_read_back):
            await self.push_error("the mark of an utterance cannot be read back")

    async def _give(self, own: Utterance, audio: bytes) -> None:
        if audio:
            await self.push_frame(_like(own.like, audio))

    async def _refuse(self, what: str, frame: TTSAudioRawFrame) -> None:
        """Drop speech that cannot be marked, or pass it on where that is allowed; say so."""
        await self.push_error(what)
        if self._unmarked_ok:
            await self.push_frame(frame)


def _form(frame: TTSAudioRawFrame) -> tuple[int, int, str | None]:
    return frame.sample_rate, frame.num_channels, frame.context_id


def _like(frame: TTSAudioRawFrame, audio: bytes) -> TTSAudioRawFrame:
    """Return a frame with other audio."""
    form = {"sample_rate": frame.sample_rate, "num_channels": frame.num_channels}
    made = TTSAudioRawFrame(audio=audio, **form, context_id=frame.context_id)
    made.transport_destination = frame.transport_destination
    return made


class Played(FrameProcessor):
    """Stands for a transport: keeps the audio that comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.audio = b""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Keep audio and pass on every frame."""
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.audio += frame.audio
        await self.push_frame(frame, direction)


async def main(output: str) -> None:
    """Let a pipeline speak the clip, and look for the mark in what it plays."""
    key, played = keybound.Key.generate(), Played()
    worker = PipelineWorker(Pipeline([MarkSpeech(key=key, payload=PAYLOAD), played]))
    samples, rate = sf.read(SPEECH, dtype="int16")
    blocks = [samples[start : start + rate // 25] for start in range(0, len(samples), rate // 25)]
    spoken = [TTSAudioRawFrame(one.tobytes(), rate, 1) for one in blocks]
    await worker.queue_frames([TTSStartedFrame(), *spoken, TTSStoppedFrame(), EndFrame()])
    runner = WorkerRunner()
    await runner.add_workers(worker)
    await runner.run()
    marked = np.frombuffer(played.audio, "<i2")
    sf.write(output, marked, rate)
    print(keybound.verify(marked, rate, key=key, payload=PAYLOAD).words)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
