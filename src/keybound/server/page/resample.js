// Resample as src/keybound/audio/resample.py does: a sinc under a Kaiser window, in doubles.

/** Return Float32Array samples at another rate; output n stands for the moment n / toHz. */
export function resample(samples, fromHz, toHz, { half_s, stop_db, transition_hz }) {
  if (fromHz === toHz) return samples;
  const shared = gcd(fromHz, toHz);
  const inputs = fromHz / shared;
  const outputs = toHz / shared; // after so many the outputs fall on the inputs as before
  const reach = roundEven(half_s * fromHz);
  const share = (2 * (Math.min(fromHz, toHz) / 2 - transition_hz / 2)) / fromHz;
  const beta = 0.1102 * (stop_db - 8.7);
  const width = 2 * reach + 2;
  const filters = new Map();
  const made = new Float32Array(roundEven((samples.length * toHz) / fromHz));
  for (let n = 0; n < made.length; n++) {
    const phase = n % outputs;
    const at = Math.floor(n / outputs) * inputs + Math.floor((phase * inputs) / outputs);
    if (!filters.has(phase)) {
      const rest = ((phase * inputs) % outputs) / outputs;
      filters.set(phase, taps(rest, reach, width, share, beta));
    }
    const filter = filters.get(phase);
    const first = at - reach;
    const stop = Math.min(width, samples.length - first);
    let sum = 0;
    for (let k = Math.max(0, -first); k < stop; k++) sum += samples[first + k] * filter[k];
    made[n] = sum;
  }
  return made;
}

/** Return the filter of an output that lies `rest` inputs behind its input. */
function taps(rest, reach, width, share, beta) {
  const made = new Float64Array(width);
  const top = bessel(beta);
  for (let k = 0; k < width; k++) {
    const lag = k - reach - rest;
    const inside = 1 - (lag / (reach + 1)) ** 2;
    if (inside <= 0) continue;
    made[k] = share * sinc(share * lag) * (bessel(beta * Math.sqrt(inside)) / top);
  }
  return made;
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

/** Return the modified Bessel function of order zero. */
function bessel(x) {
  const quarter = (x * x) / 4;
  let sum = 1;
  for (let term = 1, k = 1; term > sum * 1e-17; k++) sum += term *= quarter / (k * k);
  return sum;
}

/** Return the nearest integer, of two the even one, as Python's round. */
export function roundEven(x) {
  const low = Math.floor(x);
  if (x - low !== 0.5) return Math.round(x);
  return low % 2 ? low + 1 : low;
}

function gcd(a, b) {
  return b ? gcd(b, a % b) : a;
}
