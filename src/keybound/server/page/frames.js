// The detector's values for each frame: as Feeder and Networks.detector of the library.

/**
 * Return {presence: (frames,), logits: [(bits,), ...]} of samples at the detector's rate.
 *
 * `run` takes samples of whole blocks to {presence, logits}: (blocks,) and (bits * blocks,).
 */
export async function frames(samples, facts, run) {
  const { hop, bits, absent } = facts;
  const [past, future] = facts.context;
  const count = Math.ceil(samples.length / hop);
  const padded = new Float32Array(count * hop);
  padded.set(samples);
  const quiet = still(padded, hop, past, future, facts.still_step);
  const presence = new Float32Array(count).fill(absent);
  const logits = Array.from({ length: count }, () => new Float32Array(bits));
  for (let next = 0; next < count; next += facts.chunk_blocks) {
    const stop = Math.min(count, next + facts.chunk_blocks);
    if (quiet.subarray(next, stop).every(Boolean)) continue;
    const first = Math.max(0, next - past);
    const last = Math.min(count, stop + future);
    const made = await run(padded.subarray(first * hop, last * hop));
    for (let block = next; block < stop; block++) {
      if (quiet[block]) continue;
      presence[block] = made.presence[block - first];
      for (let bit = 0; bit < bits; bit++) {
        logits[block][bit] = made.logits[bit * (last - first) + block - first];
      }
    }
  }
  return { presence, logits };
}

/** Return which blocks are silent, with those before and after them. */
function still(samples, hop, past, future, step) {
  const count = samples.length / hop;
  const before = new Uint32Array(count + 1);
  for (let block = 0; block < count; block++) {
    let low = Infinity;
    let high = -Infinity;
    for (let i = block * hop; i < (block + 1) * hop; i++) {
      low = Math.min(low, samples[i]);
      high = Math.max(high, samples[i]);
    }
    before[block + 1] = before[block] + (Math.fround(high - low) > step ? 1 : 0);
  }
  const quiet = new Uint8Array(count);
  for (let block = 0; block < count; block++) {
    const first = Math.max(block - past, 0);
    const last = Math.min(block + future + 1, count);
    quiet[block] = before[last] === before[first] ? 1 : 0;
  }
  return quiet;
}
