// The card of one recording: what is checked, then what was found.

import { carried, claimedBy, claims, heard, sentence, words } from "./words.js";
import { peaks, wave } from "./wave.js";

const POINTS = 4000; // of the overview that a waveform is drawn from

/** Add a card for a recording that is checked at some place; return what shows the result. */
export function addCard(list, name, place) {
  const card = document.querySelector("#card").content.firstElementChild.cloneNode(true);
  const part = (selector) => card.querySelector(selector);
  part(".name").textContent = place ? `${name}, checked ${place}` : name;
  list.prepend(card);
  return {
    show(found, sound, blob) {
      const seconds = sound && sound.channels[0].length / sound.rate;
      const said = words(found, seconds);
      card.dataset.state = found.present ? "marked" : "unmarked";
      part(".verdict").textContent = said.verdict;
      part(".where").textContent = [heard(found), said.where].filter(Boolean).join(" ");
      part(".meaning").textContent = said.meaning;
      part(".claimed").textContent = claims(claimedBy(found));
      part(".manifest").textContent = carried(found.manifest);
      card.dataset.agreement = found.manifest?.agreement ?? "";
      part(".figures").textContent =
        `Presence ${found.presence.toFixed(3)}, evidence ${found.evidence_s.toFixed(2)} s; ` +
        `${found.evidence_threshold_s.toFixed(2)} s would be a mark.`;
      card.dataset.found = JSON.stringify(found);
      part(".found").hidden = false;
      // The browser decodes the first track alone.
      if (sound && (found.track ?? 1) === 1) picture(part, sound, seconds, found, blob);
      card.setAttribute("aria-busy", "false");
    },
    fail(problem) {
      card.dataset.state = "failed";
      part(".verdict").textContent = "Could not be checked";
      part(".where").textContent = sentence(problem);
      card.setAttribute("aria-busy", "false");
    },
  };
}

function picture(part, sound, seconds, found, blob) {
  const canvas = part("canvas");
  const audio = part("audio");
  audio.src = URL.createObjectURL(blob);
  part(".sound").hidden = false;
  const spans = found.present ? found.spans : [];
  canvas.setAttribute("aria-label", `Waveform of ${Math.round(seconds)} seconds; ${spans.length} marked`);
  const count = Math.min(POINTS, sound.channels[0].length);
  wave(canvas, peaks(sound.channels, count), seconds, spans, audio);
}
