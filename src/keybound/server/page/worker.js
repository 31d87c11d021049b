// Detects in a thread of its own, so that the page stays alive. Gets samples, loads the network once.

import * as ort from "./ort/ort.wasm.bundle.min.mjs";
import { detect } from "./detection.js";
import { frames } from "./frames.js";
import { views } from "./views.js";

ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmPaths = { wasm: new URL("ort/ort-wasm-simd-threaded.wasm", import.meta.url).href };
let network;

/** Return the network, whose bytes must have the hash that the facts name. */
async function load(facts) {
  const response = await fetch(new URL("weights/detector.onnx", import.meta.url));
  if (!response.ok) throw new Error("the weights of the detector cannot be loaded");
  const bytes = await response.arrayBuffer();
  if (crypto.subtle) { // absent where a page comes over plain http from another machine
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const hash = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
    if (hash !== facts.sha256) throw new Error("the weights of the detector are damaged");
  }
  return ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
}

async function run(samples) {
  const session = await network;
  const given = new ort.Tensor("float32", samples.slice(), [1, samples.length]);
  const made = await session.run({ x: given });
  const [presence, logits] = session.outputNames.map((name) => made[name].data);
  return { presence, logits };
}

self.onmessage = async ({ data: { id, channels, rate, facts } }) => {
  try {
    network ??= load(facts);
    const seconds = channels[0].length / rate;
    const made = [];
    for (const view of views(channels, rate, facts)) {
      made.push({ channel: view.channel, ...(await frames(view.samples, facts, run)) });
    }
    self.postMessage({ id, found: detect(made, seconds, facts) });
  } catch (error) {
    network = undefined;
    self.postMessage({ id, error: String(error?.message ?? error) });
  }
};
