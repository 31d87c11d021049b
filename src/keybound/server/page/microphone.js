// Record from the microphone, without what browsers do to make a voice sound better.

import { Problem } from "./decode.js";

/** Begin a recording; return {stop}, which returns {channels, rate}. */
export async function record(onSecond) {
  let stream;
  try {
    const plain = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    stream = await navigator.mediaDevices.getUserMedia({ audio: { ...plain, channelCount: 1 } });
  } catch {
    throw new Problem("the microphone cannot be used", "allow it in the browser, over https");
  }
  const context = new AudioContext();
  await context.audioWorklet.addModule(new URL("recorder.js", import.meta.url));
  const node = new AudioWorkletNode(context, "recorder");
  const blocks = [];
  let count = 0;
  node.port.onmessage = ({ data }) => {
    blocks.push(data);
    count += data.length;
    onSecond(count / context.sampleRate);
  };
  context.createMediaStreamSource(stream).connect(node);
  const stop = async () => {
    stream.getTracks().forEach((track) => track.stop());
    await context.close();
    const samples = new Float32Array(count);
    let at = 0;
    for (const block of blocks) {
      samples.set(block, at);
      at += block.length;
    }
    return { channels: [samples], rate: context.sampleRate };
  };
  return { stop };
}

/** Return a recording of one channel as a WAV file of 16 bits. */
export function asWav({ channels: [samples], rate }) {
  const data = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, word) => [...word].forEach((char, i) => data.setUint8(at + i, char.charCodeAt(0)));
  text(0, "RIFF");
  data.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  [[16, 16, 4], [20, 1, 2], [22, 1, 2], [24, rate, 4], [28, 2 * rate, 4], [32, 2, 2], [34, 16, 2]].forEach(
    ([at, value, size]) => (size === 4 ? data.setUint32(at, value, true) : data.setUint16(at, value, true)),
  );
  text(36, "data");
  data.setUint32(40, 2 * samples.length, true);
  samples.forEach((value, i) => {
    data.setInt16(44 + 2 * i, Math.max(-32768, Math.min(32767, Math.round(value * 32768))), true);
  });
  return new Blob([data], { type: "audio/wav" });
}
