// Each channel and the mix of all, at the detector's rate: as src/keybound/watermark/channels.py.

import { resample } from "./resample.js";

/** Return [{channel, samples}] at the detector's rate; channel null is the mix, or the only one. */
export function views(channels, rate, facts) {
  const all = channels.length > 1 ? [mix(channels), ...channels.slice(0, facts.most_channels)] : channels;
  const made = [];
  all.forEach((samples, index) => {
    if (made.some((view) => equal(view.own, samples))) return; // equal sounds are one
    const channel = channels.length > 1 && index > 0 ? index - 1 : null;
    made.push({ channel, own: samples });
  });
  return made.map(({ channel, own }) => ({
    channel,
    samples: resample(own, rate, facts.rate, facts.resampler),
  }));
}

function mix(channels) {
  const [first, ...others] = channels;
  const share = Math.fround(1 / channels.length);
  return first.map((value, i) => {
    if (others.every((other) => other[i] === value)) return value;
    return others.reduce((sum, other) => Math.fround(sum + other[i] * share), Math.fround(value * share));
  });
}

function equal(a, b) {
  return a === b || (a.length === b.length && a.every((value, i) => value === b[i]));
}
