// From the values of frames to what they prove: as src/keybound/model/detection.py.

import { readPublic } from "./identity/reading.js";

/**
 * Return the detection in a recording from [{channel, presence, logits}], one for each view.
 *
 * The result has the names of `keybound detect --json`.
 */
export function detect(made, seconds, facts) {
  const heard = made.filter((view) => view.presence.some((value) => value !== facts.absent)
    || view.logits.some((bits) => bits.some(Boolean)));
  const views = heard.length ? heard : made.slice(0, 1);
  const frame_s = facts.hop / facts.rate;
  const end_s = Math.min(seconds, views[0].presence.length * frame_s);
  const tries = views.length;
  const found = views.map((view) => weigh(view, frame_s, end_s, tries, facts));
  const best = found.length > 1 ? strongest(found, facts) : { ...found[0], others: [] };
  const claims = best.present ? readPublic([best, ...best.others], frame_s, facts.identifiers) : [];
  return {
    present: best.present,
    presence: best.presence,
    threshold: best.threshold,
    evidence_s: best.evidence_s,
    evidence_threshold_s: best.evidence_threshold_s,
    false_alarms: best.false_alarms,
    speed: 1,
    speeds_tried: 1,
    channel: best.channel,
    channels_tried: views.length,
    spans: best.spans,
    claimed: claims.map(({ identifier, issuer }) => ({ identifier, issuer })),
  };
}

/** Judge one view; `tries` views are judged in all. */
function weigh({ channel, presence, logits }, frame_s, end_s, tries, facts) {
  const chance = Float32Array.from(presence, (value) => 1 / (1 + Math.exp(-clip(value, 80))));
  const score = mean(chance, 0, chance.length);
  const threshold = facts.threshold + facts.excess * Math.log(tries);
  const short = end_s < facts.short_s - frame_s;
  const held = short ? facts.most_false_alarms : facts.false_alarms;
  const rate = short ? facts.false_alarms : held;
  const least_s = tailThreshold(facts.tail, tries * Math.max(end_s, facts.short_s), rate);
  const { most, found } = stretches(chance, frame_s, least_s);
  if (!found.length && short && score >= threshold) found.push([0, chance.length]);
  const parts = found.flatMap((stretch) => split(chance, stretch, frame_s, facts));
  const spans = parts.map(([start, stop]) => ({
    start_s: start * frame_s,
    end_s: Math.min(stop * frame_s, end_s),
    score: mean(chance, start, stop),
  }));
  const reach = Math.round(facts.reach_s / frame_s);
  const wider = parts.map(([a, b]) => [Math.max(0, a - reach), Math.min(chance.length, b + reach)]);
  return {
    channel,
    present: found.length > 0,
    presence: score,
    threshold,
    evidence_s: most,
    evidence_threshold_s: least_s,
    false_alarms: held,
    spans,
    chance,
    logits,
    marks: gather(spans, wider, presence, logits, facts),
  };
}

function tailThreshold({ above_s, rate_hz, scale_s }, length_s, false_alarms) {
  const expected = (rate_hz * length_s) / -Math.log1p(-false_alarms);
  return above_s + scale_s * Math.log(Math.max(1, expected));
}

/** Find the stretches that hold `least_s` of evidence, and the most that any stretch holds. */
function stretches(chance, frame_s, least_s) {
  const found = [];
  let most = 0, total = 0, best = 0, start = 0, stop = 0;
  for (let frame = 1; frame <= chance.length; frame++) {
    total += (2 * chance[frame - 1] - 1) * frame_s;
    if (total > best) {
      best = total;
      stop = frame;
    } else if (total <= Math.max(0, best - least_s)) {
      if (best >= least_s) found.push([start, stop]);
      most = Math.max(most, best);
      total = best = 0;
      start = frame;
    }
  }
  if (best >= least_s) found.push([start, stop]);
  return { most: Math.max(most, best), found };
}

/** Trim a stretch to frames that are more likely marked than not, and cut it at long pauses. */
function split(chance, [first, last], frame_s, { gap_s }) {
  const likely = [];
  for (let i = first; i < last; i++) if (chance[i] >= 0.5) likely.push(i);
  if (!likely.length) return [[first, last]];
  const parts = [[likely[0], likely[0] + 1]];
  for (const frame of likely.slice(1)) {
    const part = parts.at(-1);
    if (frame - part[1] >= gap_s / frame_s) parts.push([frame, frame + 1]);
    else part[1] = frame + 1;
  }
  return parts;
}

/** Put the spans together that carry one code; the longest comes first. */
function gather(spans, parts, presence, logits, facts) {
  const top = presence.reduce((a, b) => Math.max(a, b), -Infinity);
  const marks = [];
  const order = parts.map((_, i) => i).sort((a, b) => length(parts[b]) - length(parts[a]) || a - b);
  for (const index of order) {
    const own = new Float64Array(facts.bits);
    for (let i = parts[index][0]; i < parts[index][1]; i++) {
      const weight = Math.exp(presence[i] - top);
      for (let bit = 0; bit < own.length; bit++) own[bit] += weight * logits[i][bit];
    }
    const near = marks.find((mark) => agreement(own, mark.total) >= facts.agreement);
    if (near) {
      near.indices.push(index);
      own.forEach((value, bit) => (near.total[bit] += value));
    } else if (marks.length < facts.most_marks) {
      marks.push({ indices: [index], total: own });
    }
  }
  return marks.map(({ indices, total }) => ({
    total,
    spans: indices.sort((a, b) => a - b).map((i) => spans[i]),
  }));
}

/** Return the view with the most evidence, with the spans of all views and the other marked ones. */
function strongest(views, facts) {
  const order = [...views].sort(
    (a, b) => b.present - a.present || b.evidence_s - a.evidence_s || b.presence - a.presence,
  );
  const [first, ...rest] = order;
  const others = rest.filter((one) => one.present);
  const marks = [];
  for (const view of [first, ...others]) {
    for (const mark of view.marks) {
      const near = marks.find(
        (known) =>
          known.channel !== view.channel &&
          agreement(mark.total, known.total) >= facts.agreement_of_views,
      );
      if (near) near.spans = extended(near.spans, mark.spans);
      else marks.push({ ...mark, channel: view.channel });
    }
  }
  const unique = new Map(marks.flatMap((mark) => mark.spans).map((one) => [JSON.stringify(one), one]));
  const spans = [...unique.values()].sort((a, b) => a.start_s - b.start_s);
  return { ...first, spans, others };
}

/** Add the spans of another view that mostly lie where none is known. */
function extended(known, others) {
  const apart = others.filter((span) => {
    const shared = known.map((o) => Math.min(span.end_s, o.end_s) - Math.max(span.start_s, o.start_s));
    return shared.reduce((sum, one) => sum + Math.max(0, one), 0) < (span.end_s - span.start_s) / 2;
  });
  return [...known, ...apart].sort((a, b) => a.start_s - b.start_s);
}

/** Return the share of bits in which two codes agree, weighted by how sure the first is. */
function agreement(own, known) {
  let all = 1e-30;
  let same = 0;
  own.forEach((value, bit) => {
    all += Math.abs(value);
    if (value > 0 === known[bit] > 0) same += Math.abs(value);
  });
  return same / all;
}

function mean(values, start, stop) {
  let sum = 0;
  for (let i = start; i < stop; i++) sum += values[i];
  return sum / (stop - start);
}

function clip(value, most) {
  return Math.max(-most, Math.min(most, value));
}

function length([start, stop]) {
  return stop - start;
}
