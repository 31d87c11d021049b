// Runs in the audio thread: hands on what the microphone gives, a tenth of a second at a time.

class Recorder extends AudioWorkletProcessor {
  #held = new Float32Array(Math.round(sampleRate / 10));
  #count = 0;

  process([[samples]]) {
    for (const value of samples ?? []) {
      this.#held[this.#count++] = value;
      if (this.#count === this.#held.length) {
        this.port.postMessage(this.#held.slice());
        this.#count = 0;
      }
    }
    return true;
  }
}

registerProcessor("recorder", Recorder);
