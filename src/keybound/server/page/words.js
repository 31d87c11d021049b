// What a detection is called, for people.

/** Return a moment as minutes and seconds, with tenths. */
export function clock(seconds) {
  const tenths = Math.round(seconds * 10);
  const rest = ((tenths % 600) / 10).toFixed(1).padStart(4, "0");
  return `${Math.floor(tenths / 600)}:${rest}`;
}

/** Return {verdict, where, meaning} of a detection. */
export function words(found, seconds) {
  const rate = `one unmarked recording in ${Math.round(1 / found.false_alarms).toLocaleString("en")}`;
  if (!found.present) {
    return {
      verdict: "No mark found",
      where: `There is no more evidence of a mark than unmarked speech holds by chance.`,
      meaning:
        "This recording, as it is now, carries no KeyBound mark that can be read. That does not " +
        "mean that a person spoke it: many makers of synthetic speech do not mark it, and a mark " +
        "can be removed.",
    };
  }
  const marked = found.spans.reduce((sum, one) => sum + one.end_s - one.start_s, 0);
  const all = seconds && marked > 0.95 * seconds;
  const list = found.spans.slice(0, 6).map((one) => `${clock(one.start_s)} to ${clock(one.end_s)}`);
  if (found.spans.length > 6) list.push(`${found.spans.length - 6} more`);
  return {
    verdict: "Marked",
    where: `${all ? "The mark is in the whole recording" : "The mark is in part of the recording"}: ${list.join(", ")}.`,
    meaning:
      "Someone who uses KeyBound, as makers of synthetic speech do, put a mark into the marked " +
      "parts. The mark alone does not say who that was, nor that the words are theirs, and about " +
      `${rate} is called marked by mistake.`,
  };
}

/** Return which audio tracks of a video are marked; nothing if there is only one. */
export function heard(found) {
  if (!found.tracks) return "";
  const marked = found.tracks.filter((one) => one.present).map((one) => one.track);
  const count = `The file has ${found.tracks.length} audio tracks`;
  if (!marked.length) return `${count}, and none is marked.`;
  return `${count}. Marked: ${marked.join(", ")}. This is track ${found.track}.`;
}

/** Return what the tracks of a recording claim, each identifier once. */
export function claimedBy(found) {
  const all = (found.tracks ?? [found]).flatMap((one) => one.claimed);
  const confirmed = (one) => one.record?.claimed === false;
  const names = [...new Set(all.map((one) => `${one.issuer} ${one.identifier}`))];
  return names.map((name) => {
    const same = all.filter((one) => `${one.issuer} ${one.identifier}` === name);
    return same.find(confirmed) ?? same[0];
  });
}

/** Return who is said to have made a recording; nothing if nobody is. */
export function claims(claimed) {
  return claimed.map(claim).join(" ");
}

function claim({ identifier, issuer, record }) {
  const name = `the identifier ${identifier} of issuer ${issuer}`;
  if (record === undefined) {
    return `It claims ${name}. Anyone can write that; only the issuer can confirm it.`;
  }
  if (record === null) return `It claims ${name}, but the issuer has no record of it.`;
  const { provider, system, system_version: version, created, link } = record;
  const who = [provider, [system, version].filter(Boolean).join(" ")].filter(Boolean).join(", ");
  const made = `${who || "a provider without a name"}, ${created.slice(0, 10)}`;
  const ask = link ? ` Ask at ${link}.` : "";
  return record.claimed
    ? `It claims ${name}, made by ${made}. Anyone can copy that, and this audio does not confirm it.${ask}`
    : `It carries ${name}, and the issuer's record confirms it: ${made}.${ask}`;
}

/** Return what the C2PA manifest of a file says beside the mark; nothing if it has none. */
export function carried(manifest) {
  return manifest ? `The file carries a ${manifest.words}.` : "";
}

/** Return a problem as a sentence. */
export function sentence(problem) {
  const text = problem.hint ? `${problem.message} (${problem.hint})` : problem.message;
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}
